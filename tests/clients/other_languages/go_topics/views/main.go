// Views, read by franz-go and sarama: arguments are the bootstrap servers and a name for the source. A leader is killed
// while the source is written.
package main

import (
	"context"
	"fmt"
	"time"

	"penstock/foreign/topics/gaps"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	view := gaps.Topic + ".view"
	client := gaps.Connect()
	defer client.Close()
	gaps.Create(ctx, client, gaps.Topic, nil)
	gaps.Create(ctx, client, view, map[string]string{"view.of": gaps.Topic, "view.filter": `headers.region == "eu"`})
	fmt.Println("PRODUCING")
	for number := range gaps.Records {
		produce(ctx, client, number, gaps.IsShown(number))
	}
	gaps.Must(client.Flush(ctx))
	readers := gaps.Readers{Topic: view, Arrange: func([]int) {}}
	readers.Check(ctx, gaps.Shown())
	// A match behind the last range reaches readers that begin before it.
	produce(ctx, client, gaps.Records, true)
	gaps.Must(client.Flush(ctx))
	readers.CheckOnce(ctx, append(gaps.Shown(), gaps.Records))
	if end := gaps.EndOffset(view); end != gaps.Records+1 {
		panic(fmt.Sprintf("the view ends at %d", end))
	}
}

func produce(ctx context.Context, client *kgo.Client, number int, wanted bool) {
	region := "us"
	if wanted {
		region = "eu"
	}
	gaps.Produce(ctx, client, number, "region", region)
}
