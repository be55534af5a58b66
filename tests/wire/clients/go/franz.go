package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	client    *kgo.Client
	bootstrap []string
	id        string
	session   *kgo.GroupTransactSession
}

func openFranz(ctx context.Context, bootstrap []string, id string) (producer, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	_, _, err = client.ProducerID(ctx)
	return &franz{client: client, bootstrap: bootstrap, id: id}, err
}

func (f *franz) begin() error { return f.client.BeginTransaction() }

func (f *franz) send(topic string, partition int32, value string) error {
	record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	return f.client.ProduceSync(context.Background(), record).FirstErr()
}

// copy ends the transaction of the producer and begins another in a group session, since franz-go commits offsets in
// transactions only there. The session's producer has the same transactional id.
func (f *franz) copy(ctx context.Context, source, target, group string, count int) error {
	if err := f.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return err
	}
	f.client.Close()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(f.bootstrap...), kgo.TransactionalID(f.id), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	f.session = session
	if err := session.Begin(); err != nil {
		return err
	}
	for copied := 0; copied < count; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			copied++
			out := &kgo.Record{Topic: target, Value: record.Value}
			if err := session.ProduceSync(ctx, out).FirstErr(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *franz) end(ctx context.Context, commit bool) error {
	if f.session != nil {
		defer f.session.Close()
		committed, err := f.session.End(ctx, kgo.TransactionEndTry(commit))
		if err == nil && committed != commit {
			err = errors.New("the session was aborted")
		}
		return err
	}
	if err := f.client.Flush(ctx); err != nil {
		return err
	}
	err := f.client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	if errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) {
		return errFenced
	}
	return err
}

func readFranz(ctx context.Context, bootstrap []string, topic string, count int) ([]string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values := []string{}
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			values = append(values, string(record.Value))
		}
	}
	return values, nil
}
