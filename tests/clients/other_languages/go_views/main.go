// Views, read by franz-go and sarama: arguments are the bootstrap servers and a name for the source. A leader is killed
// while the source is written.
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

const records = 2100

var (
	brokers = strings.Split(os.Args[1], ",")
	source  = os.Args[2]
	view    = source + ".view"
	text    = `headers.region == "eu"`
)

// Dense at first, then sparse, then a long stretch without matches, one match, and none at the end.
func isWanted(number int) bool {
	return (number < 200 && number%2 == 0) || (number >= 200 && number < 700 && number%90 == 0) || number == 1500
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	must(err)
	defer client.Close()
	create(ctx, client, source, nil)
	create(ctx, client, view, map[string]string{"view.of": source, "view.filter": text})
	fmt.Println("PRODUCING")
	for number := range records {
		produce(ctx, client, number, isWanted(number))
	}
	must(client.Flush(ctx))
	var wanted []int
	for number := range records {
		if isWanted(number) {
			wanted = append(wanted, number)
		}
	}
	for _, bytes := range []int32{100, 2000, 1 << 20} {
		for _, committed := range []bool{false, true} {
			check("franz-go", bytes, wanted, readByFranz(ctx, bytes, committed, len(wanted)))
		}
		check("sarama", bytes, wanted, readBySarama(bytes, len(wanted)))
	}
	// A match behind the last range reaches readers that begin before it.
	produce(ctx, client, records, true)
	must(client.Flush(ctx))
	wanted = append(wanted, records)
	check("franz-go, with a new match", 2000, wanted, readByFranz(ctx, 2000, true, len(wanted)))
	check("sarama, with a new match", 2000, wanted, readBySarama(2000, len(wanted)))
	checkEnd()
}

func create(ctx context.Context, client *kgo.Client, name string, configs map[string]string) {
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
	must(err)
	if code := response.Topics[0].ErrorCode; code != 0 {
		panic(fmt.Sprintf("%s: error %d", name, code))
	}
}

func produce(ctx context.Context, client *kgo.Client, number int, wanted bool) {
	region := "us"
	if wanted {
		region = "eu"
	}
	client.Produce(ctx, &kgo.Record{
		Topic:   source,
		Value:   []byte(strconv.Itoa(number)),
		Headers: []kgo.RecordHeader{{Key: "region", Value: []byte(region)}},
	}, func(_ *kgo.Record, err error) { must(err) })
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
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{view: {0: kgo.NewOffset().AtStart()}}),
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
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, number(record.Value)) })
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
	reader, err := consumer.ConsumePartition(view, 0, sarama.OffsetOldest)
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

func checkEnd() {
	client, err := sarama.NewClient(brokers, sarama.NewConfig())
	must(err)
	defer client.Close()
	end, err := client.GetOffset(view, 0, sarama.OffsetNewest)
	must(err)
	if end != records+1 {
		panic(fmt.Sprintf("the view ends at %d", end))
	}
}

func check(client string, bytes int32, wanted, values []int) {
	if !slices.Equal(wanted, values) {
		panic(fmt.Sprintf("%s, %d bytes: %v", client, bytes, values))
	}
	fmt.Printf("%s, %d bytes: %d records\n", client, bytes, len(values))
}

func number(value []byte) int {
	number, err := strconv.Atoi(string(value))
	must(err)
	return number
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
