// Transactions, of version 2: an epoch for each, a zombie, and what two sessions copy exactly once while a leader dies.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sessions         = 2
	perTransaction   = 50
	transactionLimit = 20 * time.Second
)

var copyTopic = topic + "-copies"

func transact(ctx context.Context, admin *kadm.Client) {
	made, err := admin.CreateTopics(ctx, partitions, copies, nil, copyTopic)
	must(err)
	must(made.Error())
	commitAndAbort(ctx, admin)
	fence(ctx)
	copyAll(ctx)
}

func connectTransactional(name string) *kgo.Client {
	return connect(kgo.TransactionalID(topic+"-"+name), kgo.TransactionTimeout(transactionLimit))
}

func commitAndAbort(ctx context.Context, admin *kadm.Client) {
	client := connectTransactional("rounds")
	defer client.Close()
	before := int16(-1)
	for round := range 6 {
		must(client.BeginTransaction())
		for number := range partitions {
			record := &kgo.Record{Topic: copyTopic, Value: fmt.Appendf(nil, "round-%d-%d", round, number)}
			must(client.ProduceSync(ctx, record).FirstErr())
		}
		described, err := admin.DescribeTransactions(ctx, topic+"-rounds")
		must(err)
		found := described[topic+"-rounds"]
		must(found.Err)
		check(found.State == "Ongoing", "the transaction is "+found.State)
		check(before == -1 || found.ProducerEpoch == before+1, "an epoch for each transaction")
		before = found.ProducerEpoch
		must(client.EndTransaction(ctx, kgo.TransactionEndTry(round%2 == 0)))
	}
	read := readCommitted(ctx, 3*partitions)
	for value, times := range read {
		check(times == 1, value+" is read more than once")
		round, err := strconv.Atoi(strings.Split(value, "-")[1])
		must(err)
		check(round%2 == 0, value+" was aborted and is read")
	}
	check(len(read) == 3*partitions, fmt.Sprintf("%d of the committed are read", len(read)))
	say("transactions are committed and aborted, each in an epoch of its own")
}

func fence(ctx context.Context) {
	zombie := connectTransactional("zombie")
	defer zombie.Close()
	must(zombie.BeginTransaction())
	must(zombie.ProduceSync(ctx, &kgo.Record{Topic: copyTopic, Value: []byte("zombie")}).FirstErr())
	successor := connectTransactional("zombie")
	defer successor.Close()
	must(successor.BeginTransaction())
	must(successor.ProduceSync(ctx, &kgo.Record{Topic: copyTopic, Value: []byte("successor")}).FirstErr())
	err := zombie.EndTransaction(ctx, kgo.TryCommit)
	isFenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	check(isFenced, fmt.Sprintf("the zombie got %v", err))
	must(successor.EndTransaction(ctx, kgo.TryCommit))
	read := readCommitted(ctx, 3*partitions+1)
	check(read["successor"] == 1 && read["zombie"] == 0, "the zombie is not read, its successor is")
	say("a zombie is fenced")
}

func copyAll(ctx context.Context) {
	say("PRODUCING")
	stopped, stop := context.WithCancel(ctx)
	ended := make(chan struct{}, sessions)
	for number := range sessions {
		go func() {
			copyUntil(ctx, stopped, number)
			ended <- struct{}{}
		}()
	}
	expected := records + 3*partitions + 1
	readCommitted(ctx, expected)
	stop()
	for range sessions {
		<-ended
	}
	read := readCommitted(ctx, expected)
	for number := range records {
		times := read[strconv.Itoa(number)]
		check(times == 1, fmt.Sprintf("%d is there %d times", number, times))
	}
	say(fmt.Sprintf("%d records are copied, each exactly once", records))
}

func copyUntil(ctx, stopped context.Context, number int) {
	session, err := kgo.NewGroupTransactSession(
		bootstrap,
		kgo.TransactionalID(fmt.Sprintf("%s-copier-%d", topic, number)),
		kgo.TransactionTimeout(transactionLimit),
		kgo.ConsumerGroup(topic+"-copiers"),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	must(err)
	defer session.Close()
	for {
		fetches := session.PollRecords(stopped, perTransaction)
		if stopped.Err() != nil {
			return
		}
		must(session.Begin())
		end := kgo.TryCommit
		fetches.EachError(func(string, int32, error) { end = kgo.TryAbort })
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: copyTopic, Value: record.Value}, promise.Promise())
		})
		if promise.Err() != nil {
			end = kgo.TryAbort
		}
		if _, err := session.End(ctx, end); err != nil {
			fmt.Fprintf(os.Stderr, "session %d: %v\n", number, err)
		}
	}
}

// What is read of the copies, and how often, until so many are there and no more come.
func readCommitted(ctx context.Context, expected int) map[string]int {
	client := connect(
		kgo.ConsumeTopics(copyTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer client.Close()
	read := map[string]int{}
	waitUntil(fmt.Sprintf("%d are read", expected), func() bool {
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		before := len(read)
		client.PollFetches(short).EachRecord(func(record *kgo.Record) { read[string(record.Value)]++ })
		return len(read) >= expected && len(read) == before
	})
	return read
}
