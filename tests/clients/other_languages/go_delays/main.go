// Delayed messages, written by franz-go, read by franz-go and sarama: arguments are the bootstrap servers and a name for
// the topic. A leader is killed while it is written.
package main

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

const (
	records = 2100
	delayMs = 1500
	hourMs  = 3_600_000
)

var (
	brokers = strings.Split(os.Args[1], ",")
	topic   = os.Args[2]
)

// Dense at first, then sparse, then a long stretch of pending messages, one that is due, and pending ones at the end.
func isDue(number int) bool {
	return (number < 200 && number%2 == 0) || (number >= 200 && number < 700 && number%90 == 0) || number == 1500
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	must(err)
	defer client.Close()
	create(ctx, client)
	fmt.Println("PRODUCING")
	var wanted []int
	for number := range records {
		produce(ctx, client, number)
		if isDue(number) {
			wanted = append(wanted, number)
		}
	}
	must(client.Flush(ctx))
	for _, bytes := range []int32{100, 2000, 1 << 20} {
		for _, committed := range []bool{false, true} {
			check("franz-go", bytes, wanted, readByFranz(ctx, bytes, committed, len(wanted)))
		}
		check("sarama", bytes, wanted, readBySarama(bytes, len(wanted)))
	}
}

func create(ctx context.Context, client *kgo.Client) {
	made := kmsg.NewCreateTopicsRequestTopic()
	made.Topic, made.NumPartitions, made.ReplicationFactor = topic, 1, 3
	config := kmsg.NewCreateTopicsRequestTopicConfig()
	config.Name, config.Value = "delivery.delay", kmsg.StringPtr("true")
	made.Configs = append(made.Configs, config)
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 15_000
	request.Topics = append(request.Topics, made)
	response, err := request.RequestWith(ctx, client)
	must(err)
	if code := response.Topics[0].ErrorCode; code != 0 {
		panic(fmt.Sprintf("%s: error %d", topic, code))
	}
}

func produce(ctx context.Context, client *kgo.Client, number int) {
	record := &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(number))}
	delay := ""
	if !isDue(number) {
		delay = strconv.Itoa(hourMs)
	} else if number%4 == 0 {
		delay = strconv.Itoa(delayMs)
	}
	if delay != "" {
		record.Headers = []kgo.RecordHeader{{Key: "penstock-delay-ms", Value: []byte(delay)}}
	}
	client.Produce(ctx, record, func(_ *kgo.Record, err error) { must(err) })
	if number%7 == 6 {
		must(client.Flush(ctx))
	}
}

func readByFranz(ctx context.Context, bytes int32, committed bool, count int) []int {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxPartitionBytes(bytes),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchIsolationLevel(level),
	)
	must(err)
	defer client.Close()
	var values []int
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		must(ctx.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Timestamp.After(time.Now().Add(time.Second)) {
				panic("a message is early")
			}
			values = append(values, number(record.Value))
		})
	}
	return values
}

func readBySarama(bytes int32, count int) []int {
	config := sarama.NewConfig()
	config.Consumer.Fetch.Default = bytes
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	consumer, err := sarama.NewConsumer(brokers, config)
	must(err)
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	defer reader.Close()
	var values []int
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

// Messages come in the order of their due times: the same ones, each once.
func check(name string, bytes int32, wanted, found []int) {
	slices.Sort(found)
	if !slices.Equal(wanted, found) {
		panic(fmt.Sprintf("%s, %d bytes: %d of %d messages", name, bytes, len(found), len(wanted)))
	}
	fmt.Printf("%s, %d bytes: %d messages\n", name, bytes, len(found))
}

func number(value []byte) int {
	found, err := strconv.Atoi(string(value))
	must(err)
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
