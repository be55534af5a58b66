package main

import (
	"context"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

type confluent struct {
	producer  *kafka.Producer
	bootstrap []string
}

func openConfluent(ctx context.Context, bootstrap []string, id string) (producer, error) {
	opened, err := kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": strings.Join(bootstrap, ","), "transactional.id": id, "log_level": 0})
	if err != nil {
		return nil, err
	}
	return &confluent{opened, bootstrap}, opened.InitTransactions(ctx)
}

func confluentConsumer(bootstrap []string, group string) (*kafka.Consumer, error) {
	return kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": strings.Join(bootstrap, ","), "group.id": group, "auto.offset.reset": "earliest",
		"enable.auto.commit": false, "isolation.level": "read_committed"})
}

func (c *confluent) begin() error { return c.producer.BeginTransaction() }

func (c *confluent) send(topic string, partition int32, value string) error {
	delivered := make(chan kafka.Event, 1)
	message := &kafka.Message{
		TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: partition}, Value: []byte(value)}
	if err := c.producer.Produce(message, delivered); err != nil {
		return err
	}
	return (<-delivered).(*kafka.Message).TopicPartition.Error
}

func (c *confluent) copy(ctx context.Context, source, target, group string, count int) error {
	consumer, err := confluentConsumer(c.bootstrap, group)
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := consumer.Subscribe(source, nil); err != nil {
		return err
	}
	for copied := 0; copied < count; copied++ {
		message, err := consumer.ReadMessage(limit)
		if err != nil {
			return err
		}
		if err := c.send(target, 0, string(message.Value)); err != nil {
			return err
		}
	}
	assigned, err := consumer.Assignment()
	if err != nil {
		return err
	}
	positions, err := consumer.Position(assigned)
	if err != nil {
		return err
	}
	member, err := consumer.GetConsumerGroupMetadata()
	if err != nil {
		return err
	}
	return c.producer.SendOffsetsToTransaction(ctx, positions, member)
}

func (c *confluent) end(ctx context.Context, commit bool) error {
	call := c.producer.AbortTransaction
	if commit {
		call = c.producer.CommitTransaction
	}
	err := call(ctx)
	if failed, ok := err.(kafka.Error); ok && failed.IsFatal() {
		return errFenced
	}
	return err
}

func readConfluent(_ context.Context, bootstrap []string, topic string, count int) ([]string, error) {
	consumer, err := confluentConsumer(bootstrap, "unused")
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	from := []kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: 0}}
	if err := consumer.Assign(from); err != nil {
		return nil, err
	}
	values := []string{}
	for len(values) < count {
		message, err := consumer.ReadMessage(limit)
		if err != nil {
			return nil, err
		}
		values = append(values, string(message.Value))
	}
	return values, nil
}
