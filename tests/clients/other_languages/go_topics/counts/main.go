// Producers and readers of one topic, driven by the lines of counted_client.py: arguments are the client (franz or
// sarama), the bootstrap servers and the topic.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A producer. Send waits for all values and returns their partitions.
type writer interface {
	send(keys []*string, values []string) ([]int32, error)
	close() error
}

// A consumer, which says each record that it reads until it is closed.
type reader interface{ close() error }

// A client library.
type library interface {
	open(name, mode string, metadataAge time.Duration) (writer, error)
	// The kind is a group protocol with a group id as place, or "assigned" with partitions as place.
	read(name, kind, place string) (reader, error)
}

var (
	brokers   []string
	topic     string
	output    sync.Mutex
	libraries = map[string]library{"franz": franz{}, "sarama": saramas{}}
	writers   = map[string]writer{}
	unkeyed   = map[string]bool{}
	readers   = map[string]reader{}
)

func main() {
	client := libraries[os.Args[1]]
	brokers, topic = strings.Split(os.Args[2], ","), os.Args[3]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := follow(client, strings.Split(lines.Text(), " "))
		if err != nil {
			answer = fmt.Sprintf("failed %s: %v", lines.Text(), err)
		}
		say(answer)
	}
}

func follow(client library, words []string) (answer string, err error) {
	name := words[1]
	switch words[0] {
	case "open":
		unkeyed[name] = words[2] == "unkeyed"
		writers[name], err = client.open(name, words[2], time.Duration(number(words[3]))*time.Millisecond)
		return "opened", err
	case "send":
		return send(name, number(words[2]), number(words[3]))
	case "read":
		readers[name], err = client.read(name, words[2], words[3])
		return "reads", err
	}
	if found, ok := writers[name]; ok {
		delete(writers, name)
		return "closed", found.close()
	}
	return "closed", readers[name].close()
}

func send(name string, first, count int) (string, error) {
	values, keys := make([]string, count), make([]*string, count)
	for index := range values {
		values[index] = fmt.Sprintf("%s:%d", name, first+index)
		if !unkeyed[name] {
			keys[index] = &values[index]
		}
	}
	partitions, err := writers[name].send(keys, values)
	return "sent " + strings.Trim(fmt.Sprint(partitions), "[]"), err
}

func sayValue(name string, partition int32, offset int64, value []byte) {
	say(fmt.Sprintf("value %s %d %d %s", name, partition, offset, value))
}

func say(line string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(line)
}

func partitionsOf(place string) (partitions []int32) {
	for _, each := range strings.Split(place, ",") {
		partitions = append(partitions, int32(number(each)))
	}
	return partitions
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return found
}
