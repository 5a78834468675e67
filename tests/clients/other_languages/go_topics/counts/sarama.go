package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type saramas struct{}

type saramaWriter struct {
	producer sarama.SyncProducer
}

// A consumer group, or a consumer of assigned partitions.
type saramaReader struct {
	name    string
	cancel  context.CancelFunc
	ended   chan struct{}
	closing func() error
}

func (saramas) open(name, mode string, metadataAge time.Duration) (writer, error) {
	config := sarama.NewConfig()
	config.ClientID = name
	config.Metadata.RefreshFrequency = metadataAge
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	if mode == "idempotent" || mode == "transactional" {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	if mode == "transactional" {
		config.Producer.Transaction.ID = name
	}
	producer, err := sarama.NewSyncProducer(brokers, config)
	return &saramaWriter{producer}, err
}

func (writer *saramaWriter) send(keys []*string, values []string) ([]int32, error) {
	messages := make([]*sarama.ProducerMessage, len(values))
	for index, value := range values {
		messages[index] = &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
		if keys[index] != nil {
			messages[index].Key = sarama.StringEncoder(*keys[index])
		}
	}
	if writer.producer.IsTransactional() {
		if err := writer.producer.BeginTxn(); err != nil {
			return nil, err
		}
	}
	if err := writer.producer.SendMessages(messages); err != nil {
		return nil, err
	}
	if writer.producer.IsTransactional() {
		if err := writer.producer.CommitTxn(); err != nil {
			return nil, err
		}
	}
	partitions := make([]int32, len(messages))
	for index, message := range messages {
		partitions[index] = message.Partition
	}
	return partitions, nil
}

func (writer *saramaWriter) close() error { return writer.producer.Close() }

func (saramas) read(name, kind, place string) (reader, error) {
	config := sarama.NewConfig()
	config.ClientID = name
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 300 * time.Millisecond
	if kind == "assigned" {
		return readPartitions(config, name, partitionsOf(place))
	}
	group, err := sarama.NewConsumerGroup(brokers, place, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	reader := &saramaReader{name, cancel, make(chan struct{}), group.Close}
	go reader.run(ctx, group)
	return reader, nil
}

func (reader *saramaReader) run(ctx context.Context, group sarama.ConsumerGroup) {
	defer close(reader.ended)
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, reader); err != nil && ctx.Err() == nil {
			say(fmt.Sprintf("broken %s: %v", reader.name, err))
		}
	}
}

func (*saramaReader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader *saramaReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		sayValue(reader.name, message.Partition, message.Offset, message.Value)
		session.MarkMessage(message, "")
	}
	return nil
}

func readPartitions(config *sarama.Config, name string, partitions []int32) (reader, error) {
	consumer, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		return nil, err
	}
	var readings []sarama.PartitionConsumer
	ended := make(chan struct{}, len(partitions))
	for _, partition := range partitions {
		reading, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", partition, errors.Join(err, consumer.Close()))
		}
		readings = append(readings, reading)
		go func() {
			for message := range reading.Messages() {
				sayValue(name, message.Partition, message.Offset, message.Value)
			}
			ended <- struct{}{}
		}()
	}
	closeAll := func() error {
		for _, reading := range readings {
			reading.AsyncClose()
		}
		for range readings {
			<-ended
		}
		return consumer.Close()
	}
	done := make(chan struct{})
	close(done)
	return &saramaReader{name, func() {}, done, closeAll}, nil
}

func (reader *saramaReader) close() error {
	reader.cancel()
	<-reader.ended
	return reader.closing()
}
