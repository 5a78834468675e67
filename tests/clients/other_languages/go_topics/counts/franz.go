package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

type franzWriter struct {
	client        *kgo.Client
	transactional bool
}

type franzReader struct {
	client *kgo.Client
	ended  chan struct{}
}

func (franz) open(name, mode string, metadataAge time.Duration) (writer, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID(name),
		kgo.DefaultProduceTopic(topic),
		kgo.MetadataMaxAge(metadataAge),
		kgo.MetadataMinAge(min(metadataAge, 2*time.Second) / 2),
		kgo.RecordDeliveryTimeout(20 * time.Second),
		// As by default, but with another partition for unkeyed records after fewer bytes.
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(400, true, true, nil)),
	}
	switch mode {
	case "keyed", "unkeyed":
		options = append(options, kgo.DisableIdempotentWrite())
	case "transactional":
		options = append(options, kgo.TransactionalID(name))
	}
	client, err := kgo.NewClient(options...)
	return &franzWriter{client, mode == "transactional"}, err
}

func (writer *franzWriter) send(keys []*string, values []string) ([]int32, error) {
	if writer.transactional {
		if err := writer.client.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	records := make([]*kgo.Record, len(values))
	for index, value := range values {
		records[index] = &kgo.Record{Value: []byte(value)}
		if keys[index] != nil {
			records[index].Key = []byte(*keys[index])
		}
	}
	if err := writer.client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		return nil, err
	}
	if writer.transactional {
		if err := writer.client.EndTransaction(context.Background(), kgo.TryCommit); err != nil {
			return nil, err
		}
	}
	partitions := make([]int32, len(records))
	for index, record := range records {
		partitions[index] = record.Partition
	}
	return partitions, nil
}

func (writer *franzWriter) close() error {
	writer.client.Close()
	return nil
}

func (franz) read(name, kind, place string) (reader, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID(name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	ctx := context.Background()
	if kind == "assigned" {
		offsets := map[int32]kgo.Offset{}
		for _, partition := range partitionsOf(place) {
			offsets[partition] = kgo.NewOffset().AtStart()
		}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	} else {
		options = append(options, kgo.ConsumerGroup(place), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(300*time.Millisecond))
	}
	if kind == "classic" {
		// The leader of a new group finds draining partitions when it reads its metadata again.
		options = append(options, kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(500*time.Millisecond))
	}
	if kind == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	client, err := kgo.NewClient(append(options, kgo.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	reader := &franzReader{client, make(chan struct{})}
	go reader.run(name)
	return reader, nil
}

func (reader *franzReader) run(name string) {
	defer close(reader.ended)
	for {
		fetches := reader.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(record *kgo.Record) {
			sayValue(name, record.Partition, record.Offset, record.Value)
		})
	}
}

func (reader *franzReader) close() error {
	var err error
	if group, _ := reader.client.GroupMetadata(); group != "" {
		err = reader.client.CommitUncommittedOffsets(context.Background())
	}
	reader.client.Close()
	<-reader.ended
	return err
}
