package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transact commits, aborts, fences a zombie, and copies the topic exactly once.
func transact(ctx context.Context) {
	out := topic + "-transactions"
	producer := connect(kgo.TransactionalID(topic+"-id"), kgo.AllowAutoTopicCreation())
	defer producer.Close()
	for round := range 4 {
		must(producer.BeginTransaction())
		for number := range 10 {
			value := fmt.Sprintf("%d-%d", round, number)
			must(producer.ProduceSync(ctx, &kgo.Record{Topic: out, Value: []byte(value)}).FirstErr())
		}
		must(producer.EndTransaction(ctx, round%2 == 0))
	}
	check(len(readCommitted(ctx, out, 20)) == 20, "not all messages of committed transactions were read")

	must(producer.BeginTransaction())
	must(producer.ProduceSync(ctx, &kgo.Record{Topic: out, Value: []byte("zombie")}).FirstErr())
	successor := connect(kgo.TransactionalID(topic + "-id"))
	defer successor.Close()
	must(successor.BeginTransaction())
	must(successor.ProduceSync(ctx, &kgo.Record{Topic: out, Value: []byte("successor")}).FirstErr())
	must(successor.EndTransaction(ctx, kgo.TryCommit))
	err := producer.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) &&
		!errors.Is(err, kerr.InvalidProducerIDMapping) {
		check(false, fmt.Sprintf("the zombie was not fenced but told %v", err))
	}
	found := readCommitted(ctx, out, 21)
	check(found["zombie"] == 0, "what the zombie wrote is read")
	check(found["successor"] == 1, "what its successor wrote is not read")
	say("transactions are committed, aborted and fenced")
	copyInTransactions(ctx, out, 21)
}

func copyInTransactions(ctx context.Context, source string, count int) {
	sink := source + "-copies"
	session, err := kgo.NewGroupTransactSession(
		bootstrap,
		kgo.TransactionalID(topic+"-copier"),
		kgo.ConsumerGroup(topic+"-copiers"),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.AllowAutoTopicCreation(),
	)
	must(err)
	defer session.Close()
	for copied := 0; copied < count; {
		fetches := session.PollFetches(ctx)
		must(fetches.Err0())
		must(session.Begin())
		batch := 0
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: sink, Value: record.Value}, nil)
			batch++
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		must(err)
		if committed {
			copied += batch
		}
	}
	found := readCommitted(ctx, sink, count)
	check(len(found) == count, "not everything was copied")
	for value, times := range found {
		check(times == 1, "more than one copy of "+strconv.Quote(value))
	}
	say("a topic is copied exactly once")
}

func readCommitted(ctx context.Context, name string, count int) map[string]int {
	client := connect(
		kgo.ConsumeTopics(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer client.Close()
	found := map[string]int{}
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		must(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			found[string(record.Value)]++
			seen++
		})
	}
	return found
}
