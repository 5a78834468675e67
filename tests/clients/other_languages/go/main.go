// Administration, producing, a group and transactions: arguments are the bootstrap servers and a name for the topic.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records    = 3000
	partitions = 3
	copies     = 3
)

var (
	bootstrap = kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	topic     = os.Args[2]
	group     = topic + "-group"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	client := connect()
	defer client.Close()
	admin := kadm.NewClient(client)
	makeTopic(ctx, admin)
	produce(ctx)
	readAsGroup(ctx, admin)
	transact(ctx, admin)
	changeTopic(ctx, admin)
}

func connect(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, bootstrap)...)
	must(err)
	return client
}

func makeTopic(ctx context.Context, admin *kadm.Client) {
	made, err := admin.CreateTopics(ctx, partitions, copies, nil, topic)
	must(err)
	must(made.Error())
	waitUntil("in sync on three brokers", func() bool {
		details, err := admin.ListTopics(ctx, topic)
		must(err)
		found := details[topic].Partitions
		for _, partition := range found {
			if len(partition.ISR) != copies {
				return false
			}
		}
		return len(found) == partitions
	})
	say("a topic is created and described")
}

func produce(ctx context.Context) {
	say("PRODUCING")
	client := connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	defer client.Close()
	var failed sync.Map
	for number := range records {
		record := &kgo.Record{
			Topic:   topic,
			Key:     fmt.Appendf(nil, "key-%d", number%10),
			Value:   strconv.AppendInt(nil, int64(number), 10),
			Headers: []kgo.RecordHeader{{Key: "sender", Value: []byte("go")}},
		}
		client.Produce(ctx, record, func(record *kgo.Record, err error) {
			if err != nil {
				failed.Store(string(record.Value), err)
			}
		})
		time.Sleep(time.Millisecond)
	}
	must(client.Flush(ctx))
	failed.Range(func(number, err any) bool {
		check(false, fmt.Sprintf("record %v: %v", number, err))
		return true
	})
	say(fmt.Sprintf("%d records are acknowledged", records))
}

func readAsGroup(ctx context.Context, admin *kadm.Client) {
	options := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	}
	members := []*kgo.Client{connect(options...), connect(options...)}
	read := map[int]bool{}
	last := map[string]int{}
	waitUntil("all is read, by both", func() bool {
		for _, member := range members {
			short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
			member.PollFetches(short).EachRecord(func(record *kgo.Record) {
				number, err := strconv.Atoi(string(record.Value))
				must(err)
				before, seen := last[string(record.Key)]
				if !read[number] {
					check(!seen || before < number, "a key's records come in order")
					last[string(record.Key)] = number
				}
				check(len(record.Headers) == 1, "headers come along")
				read[number] = true
			})
			stop()
		}
		described, err := admin.DescribeGroups(ctx, group)
		must(err)
		return len(read) == records && len(described[group].Members) == 2 && described[group].State == "Stable"
	})
	for _, member := range members {
		must(member.CommitUncommittedOffsets(ctx))
	}
	offsets, err := admin.FetchOffsets(ctx, group)
	must(err)
	committed := int64(0)
	offsets.Each(func(offset kadm.OffsetResponse) { committed += offset.At })
	check(committed == records, fmt.Sprintf("all is committed: %d", committed))
	for _, member := range members {
		member.Close()
	}
	waitUntil("the group is deleted", func() bool {
		deleted, err := admin.DeleteGroup(ctx, group)
		return err == nil && deleted.Err == nil
	})
	say("a group of two has read all, in order, and committed")
}

func changeTopic(ctx context.Context, admin *kadm.Client) {
	value := "7200000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, topic)
	must(err)
	must(altered[0].Err)
	waitUntil("the setting holds", func() bool {
		configs, err := admin.DescribeTopicConfigs(ctx, topic)
		must(err)
		for _, config := range configs[0].Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue() == value
			}
		}
		return false
	})
	grown, err := admin.UpdatePartitions(ctx, partitions+1, topic)
	must(err)
	must(grown.Error())
	cut := kadm.Offsets{}
	cut.AddOffset(topic, 0, 5, -1)
	deleted, err := admin.DeleteRecords(ctx, cut)
	must(err)
	must(deleted.Error())
	starts, err := admin.ListStartOffsets(ctx, topic)
	must(err)
	first, _ := starts.Lookup(topic, 0)
	check(first.Offset == 5, "cut at 5")
	gone, err := admin.DeleteTopics(ctx, topic)
	must(err)
	must(gone.Error())
	waitUntil("the topic is gone", func() bool {
		left, err := admin.ListTopics(ctx)
		must(err)
		return !left.Has(topic)
	})
	say("settings, partitions and records are changed, the topic is deleted")
}

func waitUntil(what string, holds func() bool) {
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		check(time.Now().Before(deadline), "not in time: "+what)
		time.Sleep(50 * time.Millisecond)
	}
}

func must(err error) {
	if err != nil {
		check(false, err.Error())
	}
}

func check(holds bool, what string) {
	if !holds {
		fmt.Fprintln(os.Stderr, what)
		os.Exit(1)
	}
}

func say(text string) {
	fmt.Println(text)
}
