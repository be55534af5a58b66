// Package containers is a project's test with Testcontainers' module for Kafka, with the image's name changed.
package containers

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRecordsAreWrittenAndReadInAGroup(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, os.Getenv("MILENA_IMAGE"), kafka.WithClusterID("4L6g3nShT-eMCtK--X86sw"))
	testcontainers.CleanupContainer(t, container)
	check(t, err)
	brokers, err := container.Brokers(ctx)
	check(t, err)

	writer, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	check(t, err)
	defer writer.Close()
	_, err = kadm.NewClient(writer).CreateTopic(ctx, 1, 1, nil, "orders")
	check(t, err)
	for number := range 100 {
		record := &kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, "record %d", number)}
		check(t, writer.ProduceSync(ctx, record).FirstErr())
	}

	reader, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumerGroup("readers"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(t, err)
	defer reader.Close()
	for read := 0; read < 100; {
		fetches := reader.PollFetches(ctx)
		check(t, fetches.Err())
		for _, record := range fetches.Records() {
			if expected := fmt.Sprintf("record %d", read); string(record.Value) != expected {
				t.Fatalf("%q instead of %q", record.Value, expected)
			}
			read++
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
