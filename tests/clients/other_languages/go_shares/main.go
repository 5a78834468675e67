// A share group of two franz-go clients: arguments are the bootstrap servers and a name for the topic. Records are
// accepted, released, rejected and renewed while a leader is killed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const records = 2000

var (
	brokers = strings.Split(os.Args[1], ",")
	topic   = os.Args[2]
	group   = topic + "-workers"
)

// The outcome of each record: how often it was delivered, and whether it is done.
type outcomes struct {
	sync.Mutex
	deliveries map[int]int
	done       map[int]bool
}

func (o *outcomes) isComplete() bool {
	o.Lock()
	defer o.Unlock()
	return len(o.done) == records
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
	must(err)
	defer client.Close()
	create(ctx, client)
	configure(ctx, client)
	known := &outcomes{deliveries: map[int]int{}, done: map[int]bool{}}
	var workers sync.WaitGroup
	workers.Add(2)
	go work(ctx, &workers, known, kgo.ShareMaxRecords(100))
	go work(ctx, &workers, known, kgo.ShareMaxRecords(20), kgo.ShareMaxRecordsStrict())
	fmt.Println("PRODUCING")
	for number := range records {
		must(client.ProduceSync(ctx, &kgo.Record{Value: []byte(strconv.Itoa(number))}).FirstErr())
	}
	workers.Wait()
	if !known.isComplete() {
		fail("%d of %d records are done", len(known.done), records)
	}
	for number := range records {
		if isReleased(number) && known.deliveries[number] < 2 {
			fail("record %d was released and delivered %d times", number, known.deliveries[number])
		}
	}
	fmt.Printf("%d records are done\n", records)
	lagEnds(ctx, client)
}

func isReleased(number int) bool { return number%10 == 3 }

func work(ctx context.Context, workers *sync.WaitGroup, known *outcomes, options ...kgo.Opt) {
	defer workers.Done()
	options = append(options, kgo.SeedBrokers(brokers...), kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	client, err := kgo.NewClient(options...)
	must(err)
	for !known.isComplete() && ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		fetches := client.PollFetches(short)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) { settle(record, known) })
		// Errors of acknowledgements are not fatal: the records of a lost leader are delivered again.
		_ = client.FlushAcks(ctx)
	}
	client.Close()
}

func settle(record *kgo.Record, known *outcomes) {
	number, err := strconv.Atoi(string(record.Value))
	must(err)
	known.Lock()
	defer known.Unlock()
	known.deliveries[number]++
	switch {
	case isReleased(number) && known.deliveries[number] == 1:
		record.Ack(kgo.AckRelease)
		return
	case number%50 == 7:
		record.Ack(kgo.AckReject)
	case number%100 == 9:
		record.Ack(kgo.AckRenew)
		record.Ack(kgo.AckAccept)
	default:
		record.Ack(kgo.AckAccept)
	}
	known.done[number] = true
}

// The acknowledgements of the last records are stored: the group has no lag in the end.
func lagEnds(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		lag := lagOf(ctx, client)
		if lag == 0 {
			fmt.Println("the lag is 0")
			return
		}
		// Acknowledgements that were lost with a leader are repeated by another delivery.
		drain(ctx)
	}
	fail("the lag is %d", lagOf(context.Background(), client))
}

func drain(ctx context.Context) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	must(err)
	defer client.Close()
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		client.PollFetches(short).EachRecord(func(record *kgo.Record) { record.Ack(kgo.AckAccept) })
		cancel()
		_ = client.FlushAcks(ctx)
	}
}

func lagOf(ctx context.Context, client *kgo.Client) int64 {
	request := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	asked := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	asked.GroupID = group
	request.Groups = append(request.Groups, asked)
	response, err := request.RequestWith(ctx, client)
	must(err)
	var lag int64
	for _, found := range response.Groups {
		if found.ErrorCode != 0 {
			return -1
		}
		for _, of := range found.Topics {
			for _, partition := range of.Partitions {
				if partition.Lag < 0 {
					return -1
				}
				lag += partition.Lag
			}
		}
	}
	return lag
}

func create(ctx context.Context, client *kgo.Client) {
	created := kmsg.NewCreateTopicsRequestTopic()
	created.Topic, created.NumPartitions, created.ReplicationFactor = topic, 3, 3
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, created)
	response, err := request.RequestWith(ctx, client)
	must(err)
	if code := response.Topics[0].ErrorCode; code != 0 {
		fail("the topic is not created: %d", code)
	}
}

func configure(ctx context.Context, client *kgo.Client) {
	earliest := "earliest"
	change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	change.Name, change.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, change)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, client)
	must(err)
	if code := response.Resources[0].ErrorCode; code != 0 {
		fail("the group is not configured: %d", code)
	}
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
