// Package gaps has what the programs of views and of delayed messages share: topics of which readers are shown few
// records, with long stretches that they are not shown.
package gaps

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records is the number of records that a program writes.
const Records = 2100

var (
	brokers = strings.Split(os.Args[1], ",")
	// Topic is the topic that the program writes to.
	Topic = os.Args[2]
)

// IsShown tells whether readers are shown a record soon: dense at first, then sparse, then after a long stretch one
// record, and none at the end.
func IsShown(number int) bool {
	return (number < 200 && number%2 == 0) || (number >= 200 && number < 700 && number%90 == 0) || number == 1500
}

// Shown returns the numbers of all records that readers are shown soon.
func Shown() (numbers []int) {
	for number := range Records {
		if IsShown(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// Connect opens a client of franz-go that does not read.
func Connect() *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	Must(err)
	return client
}

// Create creates a topic of one partition.
func Create(ctx context.Context, client *kgo.Client, name string, configs map[string]string) {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 3
	for key, value := range configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 15_000
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, client)
	Must(err)
	if code := response.Topics[0].ErrorCode; code != 0 {
		panic(fmt.Sprintf("%s: error %d", name, code))
	}
}

// Produce writes a record with a header, if it has one, and flushes every seventh.
func Produce(ctx context.Context, client *kgo.Client, number int, header, value string) {
	record := &kgo.Record{Topic: Topic, Value: []byte(strconv.Itoa(number))}
	if value != "" {
		record.Headers = []kgo.RecordHeader{{Key: header, Value: []byte(value)}}
	}
	client.Produce(ctx, record, func(_ *kgo.Record, err error) { Must(err) })
	if number%7 == 6 {
		Must(client.Flush(ctx))
	}
}

// Readers reads a topic with both clients. Arrange brings the values into the order of the numbers if they may have
// another one.
type Readers struct {
	Topic   string
	Arrange func(values []int)
}

// Check reads with large and small responses, and both isolation levels.
func (readers Readers) Check(ctx context.Context, wanted []int) {
	for _, bytes := range []int32{100, 2000, 1 << 20} {
		for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
			readers.check("franz-go", bytes, wanted, readByFranz(ctx, readers.Topic, bytes, level, len(wanted)))
		}
		readers.check("sarama", bytes, wanted, readBySarama(readers.Topic, bytes, len(wanted)))
	}
}

// CheckOnce reads with each client once.
func (readers Readers) CheckOnce(ctx context.Context, wanted []int) {
	level := kgo.ReadCommitted()
	readers.check("franz-go, once more", 2000, wanted, readByFranz(ctx, readers.Topic, 2000, level, len(wanted)))
	readers.check("sarama, once more", 2000, wanted, readBySarama(readers.Topic, 2000, len(wanted)))
}

func readByFranz(ctx context.Context, topic string, bytes int32, level kgo.IsolationLevel, count int) (values []int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxPartitionBytes(bytes),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchIsolationLevel(level),
	)
	Must(err)
	defer client.Close()
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		Must(ctx.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Timestamp.After(time.Now().Add(time.Second)) {
				panic("a message is early")
			}
			values = append(values, number(record.Value))
		})
	}
	return values
}

func readBySarama(topic string, bytes int32, count int) (values []int) {
	config := sarama.NewConfig()
	config.Consumer.Fetch.Default = bytes
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	consumer, err := sarama.NewConsumer(brokers, config)
	Must(err)
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	Must(err)
	defer reader.Close()
	for len(values) < count {
		select {
		case message := <-reader.Messages():
			values = append(values, number(message.Value))
		case <-time.After(60 * time.Second):
			panic(fmt.Sprintf("sarama stops after %d records", len(values)))
		}
	}
	return values
}

// EndOffset is the log end offset that sarama is told.
func EndOffset(topic string) int64 {
	client, err := sarama.NewClient(brokers, sarama.NewConfig())
	Must(err)
	defer client.Close()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	Must(err)
	return end
}

func (readers Readers) check(client string, bytes int32, wanted, found []int) {
	readers.Arrange(found)
	if !slices.Equal(wanted, found) {
		panic(fmt.Sprintf("%s, %d bytes: %d of %d records: %v", client, bytes, len(found), len(wanted), found))
	}
	fmt.Printf("%s, %d bytes: %d records\n", client, bytes, len(found))
}

func number(value []byte) int {
	found, err := strconv.Atoi(string(value))
	Must(err)
	return found
}

// Must ends the program if there is an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
