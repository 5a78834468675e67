// Logins of franz-go over TLS with each mechanism, and users, rules and quotas by its admin client: arguments are the bootstrap servers,
// the authority, a user, its password and a name for topics.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const records = 100

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	user, password, name := os.Args[3], os.Args[4], os.Args[5]
	secret := scram.Auth{User: user, Pass: password}
	mechanisms := []sasl.Mechanism{
		plain.Auth{User: user, Pass: password}.AsMechanism(), secret.AsSha256Mechanism(), secret.AsSha512Mechanism(),
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, mechanism := range mechanisms {
		topic := name + "-" + strings.ToLower(mechanism.Name())
		if err := roundTrip(ctx, mechanism, topic); err != nil {
			return fmt.Errorf("%s: %w", mechanism.Name(), err)
		}
		fmt.Println(mechanism.Name() + ": logged in, produced and consumed")
	}
	if err := manageUsers(ctx, mechanisms[2]); err != nil {
		return err
	}
	fmt.Println("a user is created, logs in and is deleted")
	if err := manageRights(ctx, mechanisms[2]); err != nil {
		return err
	}
	fmt.Println("rules and quotas are created, described and deleted")
	return nil
}

func client(mechanism sasl.Mechanism, options ...kgo.Opt) (*kgo.Client, error) {
	authority, err := os.ReadFile(os.Args[2])
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return kgo.NewClient(append(options,
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.DialTLSConfig(&tls.Config{RootCAs: pool}),
		kgo.SASL(mechanism),
		kgo.AllowAutoTopicCreation())...)
}

func roundTrip(ctx context.Context, mechanism sasl.Mechanism, topic string) error {
	group := []kgo.Opt{kgo.ConsumerGroup(topic + "-group"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	writer, err := client(mechanism)
	if err != nil {
		return err
	}
	defer writer.Close()
	for number := 0; number < records; number++ {
		record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint("record ", number))}
		if err := writer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	reader, err := client(mechanism, group...)
	if err != nil {
		return err
	}
	defer reader.Close()
	for read := 0; read < records; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		read += fetches.NumRecords()
	}
	return nil
}

func manageUsers(ctx context.Context, mechanism sasl.Mechanism) error {
	connected, err := client(mechanism)
	if err != nil {
		return err
	}
	defer connected.Close()
	admin := kadm.NewClient(connected)
	change := kadm.UpsertSCRAM{User: "go", Mechanism: kadm.ScramSha256, Iterations: 8192, Password: "word"}
	altered, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{change})
	if err != nil {
		return err
	}
	if err := altered.Error(); err != nil {
		return err
	}
	described, err := admin.DescribeUserSCRAMs(ctx)
	if err != nil {
		return err
	}
	if _, found := described["go"]; !found {
		return fmt.Errorf("the new user is not described")
	}
	own := scram.Auth{User: "go", Pass: "word"}.AsSha256Mechanism()
	if err := roundTrip(ctx, own, os.Args[5]+"-user"); err != nil {
		return err
	}
	deletion := kadm.DeleteSCRAM{User: "go", Mechanism: kadm.ScramSha256}
	deleted, err := admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{deletion}, nil)
	if err != nil {
		return err
	}
	return deleted.Error()
}
