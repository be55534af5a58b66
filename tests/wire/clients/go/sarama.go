package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

type ibm struct {
	producer  sarama.SyncProducer
	bootstrap []string
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

func openSarama(_ context.Context, bootstrap []string, id string) (producer, error) {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	opened, err := sarama.NewSyncProducer(bootstrap, config)
	return &ibm{opened, bootstrap}, err
}

func (s *ibm) begin() error { return s.producer.BeginTxn() }

func (s *ibm) send(topic string, partition int32, value string) error {
	_, _, err := s.producer.SendMessage(
		&sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)})
	return err
}

type copier struct {
	target   string
	group    string
	count    int
	producer *ibm
	done     context.CancelFunc
	err      error
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if claim.Partition() != 0 {
		<-session.Context().Done() // the first return would end the session
		return nil
	}
	for message := range claim.Messages() {
		c.err = c.producer.send(c.target, 0, string(message.Value))
		if c.err == nil {
			c.err = c.producer.producer.AddMessageToTxn(message, c.group, nil)
		}
		c.count--
		if c.count == 0 || c.err != nil {
			break
		}
	}
	c.done()
	return nil
}

func (s *ibm) copy(ctx context.Context, source, target, group string, count int) error {
	members, err := sarama.NewConsumerGroup(s.bootstrap, group, saramaConfig())
	if err != nil {
		return err
	}
	defer members.Close()
	inner, done := context.WithCancel(ctx)
	work := &copier{target, group, count, s, done, nil}
	if err := members.Consume(inner, []string{source}, work); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return work.err
}

func (s *ibm) end(_ context.Context, commit bool) error {
	call := s.producer.AbortTxn
	if commit {
		call = s.producer.CommitTxn
	}
	err := call()
	if err != nil && s.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
		return errFenced
	}
	return err
}

func readSarama(ctx context.Context, bootstrap []string, topic string, count int) ([]string, error) {
	consumer, err := sarama.NewConsumer(bootstrap, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	values := []string{}
	for len(values) < count {
		select {
		case message := <-partition.Messages():
			values = append(values, string(message.Value))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return values, nil
}
