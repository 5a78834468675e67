// Every way of franz-go to log in, at once and under load, while logins expire. The argument is the file of
// `login_ground.py`.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type ground struct {
	Addresses                                     map[string]string
	Authority, Certificate, User, Password, Token string
	Seconds                                       int
}

type login struct {
	name    string
	options []kgo.Opt
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	content, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var given ground
	if err := json.Unmarshal(content, &given); err != nil {
		return err
	}
	logins, err := given.logins()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ends := make(chan error)
	for _, each := range logins {
		go func() { ends <- each.use(ctx, time.Duration(given.Seconds)*time.Second) }()
	}
	for range logins {
		if err := <-ends; err != nil {
			return err
		}
	}
	return nil
}

func (given ground) logins() ([]login, error) {
	authority, err := os.ReadFile(given.Authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	certificate, err := tls.LoadX509KeyPair(given.Certificate, given.Certificate)
	if err != nil {
		return nil, err
	}
	encrypted := kgo.DialTLSConfig(&tls.Config{RootCAs: pool})
	shown := kgo.DialTLSConfig(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}})
	secret := scram.Auth{User: given.User, Pass: given.Password}
	found := []login{{"ssl", []kgo.Opt{given.seeds("SSL"), shown}}}
	for _, mechanism := range []sasl.Mechanism{
		plain.Auth{User: given.User, Pass: given.Password}.AsMechanism(),
		secret.AsSha256Mechanism(),
		secret.AsSha512Mechanism(),
		oauth.Auth{Token: given.Token}.AsMechanism(),
	} {
		found = append(found,
			login{"sasl-ssl-" + mechanism.Name(), []kgo.Opt{given.seeds("SASL_SSL"), encrypted, kgo.SASL(mechanism)}},
			login{"sasl-plaintext-" + mechanism.Name(), []kgo.Opt{given.seeds("SASL_PLAINTEXT"), kgo.SASL(mechanism)}})
	}
	return found, nil
}

func (given ground) seeds(listener string) kgo.Opt {
	return kgo.SeedBrokers(strings.Split(given.Addresses[listener], ",")...)
}

// use produces for a time, one record after the other, while a member of a group reads all of them.
func (given login) use(ctx context.Context, duration time.Duration) error {
	topic := "go-" + strings.ToLower(given.name)
	sent := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		count, err := given.produce(ctx, topic, time.Now().Add(duration))
		if err != nil {
			failed <- fmt.Errorf("%s: %w", given.name, err)
			return
		}
		sent <- count
	}()
	reader, err := kgo.NewClient(append(given.options, kgo.ConsumerGroup(topic+"-group"), kgo.ConsumeTopics(topic),
		kgo.AllowAutoTopicCreation(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer reader.Close()
	for read, wanted := 0, -1; wanted < 0 || read < wanted; {
		select {
		case wanted = <-sent:
			fmt.Printf("%s: %d records\n", given.name, wanted)
		case err := <-failed:
			return err
		default:
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			read += reader.PollFetches(short).NumRecords()
			cancel()
			if ctx.Err() != nil {
				return fmt.Errorf("%s: %d of %d records were read", given.name, read, wanted)
			}
		}
	}
	return nil
}

func (given login) produce(ctx context.Context, topic string, end time.Time) (int, error) {
	options := append([]kgo.Opt{kgo.AllowAutoTopicCreation()}, given.options...)
	writer, err := kgo.NewClient(options...)
	if err != nil {
		return 0, err
	}
	defer writer.Close()
	count := 0
	for time.Now().Before(end) {
		record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint("record ", count))}
		if err := writer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return count, err
		}
		count++
		time.Sleep(10 * time.Millisecond)
	}
	return count, nil
}
