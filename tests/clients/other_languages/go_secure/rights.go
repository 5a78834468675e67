package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
)

const (
	quota    = 50
	patience = 10 * time.Second
)

// manageRights creates, describes and deletes rules and quotas.
func manageRights(ctx context.Context, mechanism sasl.Mechanism) error {
	connected, err := client(mechanism)
	if err != nil {
		return err
	}
	defer connected.Close()
	admin := kadm.NewClient(connected)
	if err := manageRules(ctx, admin); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if err := manageQuotas(ctx, admin); err != nil {
		return fmt.Errorf("quotas: %w", err)
	}
	return nil
}

func manageRules(ctx context.Context, admin *kadm.Client) error {
	made := kadm.NewACLs().Allow("User:gopher").AllowHosts("10.0.0.7").Deny("User:gopher").DenyHosts("*").
		Topics("gophers-").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead, kadm.OpWrite)
	created, err := admin.CreateACLs(ctx, made)
	if err != nil {
		return err
	}
	for _, each := range created {
		if each.Err != nil {
			return each.Err
		}
	}
	matching := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Allow("User:gopher").AllowHosts().Deny("User:gopher").DenyHosts().
			Topics("gophers-1").ResourcePatternType(kadm.ACLPatternMatch).Operations()
	}
	rules := func() (int, error) { return countRules(ctx, admin, matching()) }
	if err := eventually("rules", 4, rules); err != nil {
		return err
	}
	deleted, err := admin.DeleteACLs(ctx, matching())
	if err != nil {
		return err
	}
	removed := 0
	for _, each := range deleted {
		if each.Err != nil {
			return each.Err
		}
		removed += len(each.Deleted)
	}
	if removed != 4 {
		return fmt.Errorf("%d rules are deleted, not 4", removed)
	}
	return eventually("rules", 0, rules)
}

// eventually waits until the count is the expected one: a change is at all brokers within a second.
func eventually(noun string, expected int, count func() (int, error)) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		found, err := count()
		if err != nil || found == expected {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d %s are described, not %d", found, noun, expected)
		}
	}
}

func countRules(ctx context.Context, admin *kadm.Client, filter *kadm.ACLBuilder) (int, error) {
	described, err := admin.DescribeACLs(ctx, filter)
	count := 0
	for _, each := range described {
		err = errors.Join(err, each.Err)
		count += len(each.Described)
	}
	return count, err
}

func manageQuotas(ctx context.Context, admin *kadm.Client) error {
	gopher, address := "gopher", "10.0.0.7"
	entities := map[string]kadm.ClientQuotaEntity{
		"producer_byte_rate":       {{Type: "user", Name: &gopher}},
		"request_percentage":       {{Type: "user", Name: &gopher}, {Type: "client-id"}},
		"connection_creation_rate": {{Type: "ip", Name: &address}},
	}
	for key, entity := range entities {
		if err := alterQuota(ctx, admin, entity, kadm.AlterClientQuotaOp{Key: key, Value: quota}); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		quotas := func() (int, error) { return countQuotas(ctx, admin, entity) }
		if err := eventually(key, 1, quotas); err != nil {
			return err
		}
		invalid := kadm.AlterClientQuotaOp{Key: key, Value: -1}
		if err := alterQuota(ctx, admin, entity, invalid); !errors.Is(err, kerr.InvalidRequest) {
			return fmt.Errorf("a negative %s is not refused, but: %v", key, err)
		}
		if err := alterQuota(ctx, admin, entity, kadm.AlterClientQuotaOp{Key: key, Remove: true}); err != nil {
			return err
		}
		if err := eventually(key, 0, quotas); err != nil {
			return err
		}
	}
	return nil
}

func alterQuota(
	ctx context.Context, admin *kadm.Client, entity kadm.ClientQuotaEntity, change kadm.AlterClientQuotaOp,
) error {
	entry := kadm.AlterClientQuotaEntry{Entity: entity, Ops: []kadm.AlterClientQuotaOp{change}}
	altered, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{entry})
	for _, each := range altered {
		err = errors.Join(err, each.Err)
	}
	return err
}

func countQuotas(ctx context.Context, admin *kadm.Client, entity kadm.ClientQuotaEntity) (int, error) {
	var asked []kadm.DescribeClientQuotaComponent
	for _, each := range entity {
		match := kadm.QuotasMatchType(0)
		if each.Name == nil {
			match = 1
		}
		asked = append(asked, kadm.DescribeClientQuotaComponent{Type: each.Type, MatchName: each.Name, MatchType: match})
	}
	described, err := admin.DescribeClientQuotas(ctx, true, asked)
	count := 0
	for _, each := range described {
		for _, value := range each.Values {
			if value.Value != quota {
				err = errors.Join(err, fmt.Errorf("%s has the quota %s", entity, value))
			}
			count++
		}
	}
	return count, err
}
