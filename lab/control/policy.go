package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailscale.com/tailcfg"
)

// tcp is TCP's number in an IP packet.
const tcp = 6

// policy is the part of Tailscale's policy file that the lab enforces: grants of TCP ports between tags.
type policy struct {
	Grants []struct {
		Src, Dst, IP []string
	}
}

// readPolicy reads a policy file. It returns nil if none exists.
func readPolicy(path string) (*policy, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	read := &policy{}
	return read, json.Unmarshal(text, read)
}

// rules returns the rules of the policy for packets that reach self.
func (p *policy) rules(self *tailcfg.Node, peers []*tailcfg.Node) ([]tailcfg.FilterRule, error) {
	// A filter without rules would mean that the last one stays.
	rules := []tailcfg.FilterRule{{SrcIPs: addresses(self), DstPorts: ports(self, []tailcfg.PortRange{tailcfg.PortRangeAny})}}
	for _, grant := range p.Grants {
		if len(grant.IP) == 0 || !selected(self, grant.Dst) {
			continue
		}
		rule := tailcfg.FilterRule{IPProto: []int{tcp}}
		for _, peer := range peers {
			if selected(peer, grant.Src) {
				rule.SrcIPs = append(rule.SrcIPs, addresses(peer)...)
			}
		}
		ranges, err := portRanges(grant.IP)
		if err != nil {
			return nil, err
		}
		rule.DstPorts = ports(self, ranges)
		if len(rule.SrcIPs) > 0 {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

// selected reports whether a node has one of the tags.
func selected(node *tailcfg.Node, selectors []string) bool {
	return slices.ContainsFunc(selectors, func(s string) bool { return s == "*" || slices.Contains(node.Tags, s) })
}

func addresses(node *tailcfg.Node) (found []string) {
	for _, prefix := range node.Addresses {
		found = append(found, prefix.Addr().String())
	}
	return found
}

func ports(node *tailcfg.Node, ranges []tailcfg.PortRange) (found []tailcfg.NetPortRange) {
	for _, address := range addresses(node) {
		for _, each := range ranges {
			found = append(found, tailcfg.NetPortRange{IP: address, Ports: each})
		}
	}
	return found
}

// portRanges reads entries such as tcp:22 and tcp:60001-60999.
func portRanges(entries []string) (ranges []tailcfg.PortRange, err error) {
	for _, entry := range entries {
		text, isTCP := strings.CutPrefix(entry, "tcp:")
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		low, lowErr := strconv.ParseUint(first, 10, 16)
		high, highErr := strconv.ParseUint(last, 10, 16)
		if !isTCP || lowErr != nil || highErr != nil {
			return nil, fmt.Errorf("the lab enforces entries such as tcp:22 and tcp:60001-60999, not %q", entry)
		}
		ranges = append(ranges, tailcfg.PortRange{First: uint16(low), Last: uint16(high)})
	}
	return ranges, nil
}

// policyPath returns the file with the tailnet's policy. Tests write it.
func (t *tailnet) policyPath() string { return strings.TrimSuffix(t.path, ".json") + ".policy.json" }

// filter returns the packet filter of self: the policy's, or all packets if there is no policy. A policy that cannot be
// read lets nothing through.
func (t *tailnet) filter(self *tailcfg.Node, peers []*tailcfg.Node) []tailcfg.FilterRule {
	found, err := readPolicy(t.policyPath())
	if err == nil && found == nil {
		return packetFilter
	}
	if err == nil {
		var rules []tailcfg.FilterRule
		if rules, err = found.rules(self, peers); err == nil {
			return append(rules, relayRule)
		}
	}
	log.Printf("%s: %v", t.policyPath(), err)
	none, _ := (&policy{}).rules(self, nil)
	return none
}

// watchPolicy wakes every poll when the policy's file changes.
func (t *tailnet) watchPolicy() {
	for before := t.policyText(); ; time.Sleep(time.Second) {
		if now := t.policyText(); now != before {
			before = now
			t.mu.Lock()
			t.publish()
			t.mu.Unlock()
		}
	}
}

func (t *tailnet) policyText() string {
	text, _ := os.ReadFile(t.policyPath())
	return string(text)
}
