// Administration by sarama, kafka-go and franz-go: arguments are the bootstrap servers and a name for the topics.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	segmentio "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const copies = 3

var (
	bootstrap = strings.Split(os.Args[1], ",")
	topic     = os.Args[2]
	settings  = map[string]string{
		"cleanup.policy":         "compact",
		"compression.type":       "zstd",
		"compression.zstd.level": "5",
		"file.delete.delay.ms":   "1000",
	}
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	withSarama()
	withKafkaGo(ctx)
	withFranz(ctx)
}

func withSarama() {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	admin, err := sarama.NewClusterAdmin(bootstrap, config)
	must(err)
	defer admin.Close()
	name := topic + "-sarama"
	entries := map[string]*string{}
	for key, value := range settings {
		entries[key] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: copies, ConfigEntries: entries}
	must(admin.CreateTopic(name, detail, false))
	found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: name})
	must(err)
	shown := map[string]string{}
	for _, entry := range found {
		shown[entry.Name] = entry.Value
	}
	checkSettings("sarama", shown)
	directories, err := admin.DescribeLogDirs([]int32{1})
	must(err)
	check(len(directories[1]) == 1, "sarama: a broker has one log directory")
}

func withKafkaGo(ctx context.Context) {
	client := &segmentio.Client{Addr: segmentio.TCP(bootstrap...)}
	name := topic + "-kafka-go"
	entries := []segmentio.ConfigEntry{}
	for key, value := range settings {
		entries = append(entries, segmentio.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	made, err := client.CreateTopics(ctx, &segmentio.CreateTopicsRequest{Topics: []segmentio.TopicConfig{
		{Topic: name, NumPartitions: 2, ReplicationFactor: copies, ConfigEntries: entries},
	}})
	must(err)
	must(made.Errors[name])
	resource := segmentio.DescribeConfigRequestResource{ResourceType: segmentio.ResourceTypeTopic, ResourceName: name}
	described, err := client.DescribeConfigs(ctx, &segmentio.DescribeConfigsRequest{
		Resources: []segmentio.DescribeConfigRequestResource{resource},
	})
	must(err)
	shown := map[string]string{}
	for _, entry := range described.Resources[0].ConfigEntries {
		shown[entry.ConfigName] = entry.ConfigValue
	}
	checkSettings("kafka-go", shown)
}

func withFranz(ctx context.Context) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	must(err)
	defer client.Close()
	quorum := kmsg.NewPtrDescribeQuorumRequest()
	partition := kmsg.NewDescribeQuorumRequestTopicPartition()
	asked := kmsg.NewDescribeQuorumRequestTopic()
	asked.Topic, asked.Partitions = "__cluster_metadata", append(asked.Partitions, partition)
	quorum.Topics = append(quorum.Topics, asked)
	answer, err := quorum.RequestWith(ctx, client)
	must(err)
	must(kerr.ErrorForCode(answer.ErrorCode))
	check(len(answer.Topics[0].Partitions[0].CurrentVoters) == 1, "franz-go: the quorum has one voter")

	features := kmsg.NewPtrUpdateFeaturesRequest()
	update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	update.Feature, update.MaxVersionLevel = "group.version", 1
	features.FeatureUpdates = append(features.FeatureUpdates, update)
	updated, err := features.RequestWith(ctx, client)
	must(err)
	must(kerr.ErrorForCode(updated.ErrorCode))

	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	unregister.BrokerID = 77
	unregistered, err := unregister.RequestWith(ctx, client)
	must(err)
	refusal := kerr.ErrorForCode(unregistered.ErrorCode)
	check(refusal == kerr.BrokerIDNotRegistered, fmt.Sprintf("franz-go: broker 77 is not registered, not %v", refusal))

	move := kmsg.NewPtrAlterReplicaLogDirsRequest()
	directory := kmsg.NewAlterReplicaLogDirsRequestDir()
	moved := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	moved.Topic, moved.Partitions = topic+"-sarama", []int32{0}
	directory.Dir, directory.Topics = "/no/such/directory", append(directory.Topics, moved)
	move.Dirs = append(move.Dirs, directory)
	refused, err := move.RequestWith(ctx, client)
	must(err)
	code := kerr.ErrorForCode(refused.Topics[0].Partitions[0].ErrorCode)
	check(code == kerr.LogDirNotFound, fmt.Sprintf("franz-go: the directory is not found, not %v", code))
}

func checkSettings(library string, shown map[string]string) {
	for key, value := range settings {
		check(shown[key] == value, fmt.Sprintf("%s: %s is %s, not %s", library, key, value, shown[key]))
	}
	fmt.Printf("%s: the topic has its settings\n", library)
}

func check(condition bool, expectation string) {
	if !condition {
		fail("expected: " + expectation)
	}
}

func must(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
