// Delayed messages, written by franz-go, read by franz-go and sarama: arguments are the bootstrap servers and a name for
// the topic. A leader is killed while it is written.
package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"penstock/foreign/topics/gaps"
)

const (
	delayMs = 1500
	hourMs  = 3_600_000
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	client := gaps.Connect()
	defer client.Close()
	gaps.Create(ctx, client, gaps.Topic, map[string]string{"delivery.delay": "true"})
	fmt.Println("PRODUCING")
	for number := range gaps.Records {
		gaps.Produce(ctx, client, number, "penstock-delay-ms", delay(number))
	}
	gaps.Must(client.Flush(ctx))
	// Messages come in the order of their due times: the same ones, each once.
	gaps.Readers{Topic: gaps.Topic, Arrange: slices.Sort[[]int]}.Check(ctx, gaps.Shown())
}

// Messages that are not shown are still pending when the readers end.
func delay(number int) string {
	if !gaps.IsShown(number) {
		return strconv.Itoa(hourMs)
	}
	if number%4 == 0 {
		return strconv.Itoa(delayMs)
	}
	return ""
}
