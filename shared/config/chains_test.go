package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func secrets(texts ...string) (list []config.Secret) {
	for _, text := range texts {
		list = append(list, config.NewSecret(text))
	}
	return list
}

// The settings of one chain are its short form; chains adds others, each with the
// settings' terms for what it leaves out, or stands in place of rpc.urls.
func TestServedChains(t *testing.T) {
	t.Parallel()
	short := config.ServedChain{ID: 1, Namespace: "eip155", URLs: secrets("https://node.example"), Quorum: 1, BlockTime: 12 * time.Second,
		FeeKind: config.FeeKindEIP1559, Finality: txmanager.ByConfirmations, Confirmations: 20, FinalizedTag: true}
	base := config.ServedChain{ID: 8453, Namespace: "mem", URLs: secrets("https://a.example", "https://b.example"), BlockTime: 2 * time.Second,
		FeeKind: config.FeeKindLegacy, Finality: txmanager.BySafe, Confirmations: 20, FinalizedTag: false}
	const other = `{"id": 8453, "namespace": "mem", "urls": ["https://a.example", "https://b.example"], "blockTime": "2s", "feeKind": "legacy", "finality": "safe", "finalizedTag": false}`
	const first = `{"id": 1, "urls": ["https://x", "https://y"], "quorum": 2}`
	long, plain := short, short
	long.URLs, long.Quorum = secrets("https://x", "https://y"), 2
	slow := long
	slow.BlockTime, slow.Confirmations = 3*time.Second, 7
	plain.ID, plain.URLs, plain.Quorum = 7, secrets("https://z"), 0
	for name, c := range map[string]struct {
		given []string
		want  []config.ServedChain
	}{
		"short form":         {[]string{"FENCEPOST_RPC_URLS=https://node.example", "FENCEPOST_RPC_QUORUM=1"}, []config.ServedChain{short}},
		"and another":        {[]string{"FENCEPOST_RPC_URLS=https://node.example", "FENCEPOST_RPC_QUORUM=1", "FENCEPOST_CHAINS=[" + other + "]"}, []config.ServedChain{short, base}},
		"the default listed": {[]string{"FENCEPOST_CHAINS=[" + other + ", " + first + "]"}, []config.ServedChain{long, base}},
		"several nodes":      {[]string{"FENCEPOST_RPC_URLS=https://x, https://y", "FENCEPOST_RPC_QUORUM=2"}, []config.ServedChain{long}},
		"another chain has nothing of the default chain's entry": {
			[]string{"FENCEPOST_CHAINS=[" + strings.Replace(first, "}", `, "blockTime": "3s", "confirmations": 7}`, 1) + `, {"id": 7, "urls": ["https://z"]}]`},
			[]config.ServedChain{slow, plain}},
	} {
		check.Same(t, name, mustLoad(t, c.given...).Served(), c.want, revealed)
	}
}

// A list of chains that is not right is refused whole, with the entry and the member that
// is wrong, and what it holds is not shown.
func TestWrongChainsAreRefused(t *testing.T) {
	t.Parallel()
	const right = `{"id": 7, "urls": ["https://hunter2"]}`
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":             {`[{"id": 5, "urls": ["https://hunter2"],}]`, "it is no JSON from byte 40 on"},
		"plain http":          {`[{"id": 5, "urls": ["http://hunter2"]}]`, "entry 1 (chain 5): urls: want 1 to 9 https URLs"},
		"plain http, private": {`[{"id": 5, "urls": ["https://a", "http://10.0.0.7:8545/hunter2"]}]`, "entry 1 (chain 5): urls: want 1 to 9 https URLs"},
		"no list":             {`{"id": 5, "urls": ["https://hunter2"]}`, "it is no JSON list"},
		"two lists":           {`[] []`, "it is no JSON from byte 4 on"},
		"no object":           {`["https://hunter2"]`, "entry 1: it is no object"},
		"no id":               {`[{"urls": ["https://hunter2"]}]`, "entry 1: id: want 1 to "},
		"id in quotes":        {`[{"id": "hunter2", "urls": ["https://hunter2"]}]`, "entry 1: id: it is a string"},
		"no node":             {`[{"id": 5}]`, "entry 1 (chain 5): urls: want 1 to 9"},
		"no URL":              {`[` + right + `, {"id": 5, "urls": ["hunter2"]}]`, "entry 2 (chain 5): urls: want 1 to 9"},
		"two URLs in one":     {`[{"id": 5, "urls": ["https://hunter2,https://b"]}]`, "entry 1 (chain 5): urls: "},
		"one URL, no list":    {`[{"id": 5, "urls": "https://hunter2"}]`, "entry 1 (chain 5): urls: it is a string"},
		"twice":               {`[` + right + `, {"id": 7, "urls": ["https://b"]}]`, "entry 2 (chain 7): id: an entry before has it too"},
		"unknown member":      {`[{"id": 5, "urls": ["https://hunter2"], "blocktimes": "2s"}]`, "entry 1 (chain 5): blocktimes: there is no such member"},
		"no namespace":        {`[{"id": 5, "namespace": "Hunter2", "urls": ["https://hunter2"]}]`, "entry 1 (chain 5): namespace: want one of CAIP-2"},
		"a URL as a member":   {`[{"id": 5, "https://hunter2": true}]`, "entry 1 (chain 5): it is no object, or has an unknown member"},
		"no block time":       {`[{"id": 5, "urls": ["https://hunter2"], "blockTime": "0s"}]`, "entry 1 (chain 5): blockTime: want a duration from "},
		"no finality":         {`[{"id": 5, "urls": ["https://hunter2"], "finality": "latest"}]`, "entry 1 (chain 5): finality: want one of confirmations, safe, finalized"},
		"no fee kind":         {`[{"id": 5, "urls": ["https://hunter2"], "feeKind": "1559"}]`, "entry 1 (chain 5): feeKind: want one of eip1559, legacy"},
		"many confirmations":  {`[{"id": 5, "urls": ["https://hunter2"], "confirmations": 1001}]`, "entry 1 (chain 5): confirmations: want 0 to 1000"},
		"quorum out of reach": {`[{"id": 5, "urls": ["https://hunter2"], "quorum": 2}]`, "entry 1 (chain 5): quorum: want 1 to 1"},
		"one node twice":      {`[{"id": 5, "urls": ["https://hunter2", "https://b", "https://hunter2"]}]`, "entry 1 (chain 5): urls: want 1 to 9"},
		"ten nodes":           {fmt.Sprintf(`[{"id": 5, "urls": [%s]}]`, strings.TrimSuffix(strings.Repeat(`"https://hunter2",`, 10), ",")), "entry 1 (chain 5): urls: want 1 to 9"},
	} {
		_, err := config.LoadForTests(with("FENCEPOST_CHAINS=" + c.text))
		if err == nil || !strings.Contains(err.Error(), "FENCEPOST_CHAINS=[redacted]: "+c.want) || !strings.Contains(err.Error(), ": want a JSON list") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q, and no URL", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		given []string
		want  string
	}{
		"nodes given twice": {[]string{"FENCEPOST_RPC_URLS=https://a", `FENCEPOST_CHAINS=[{"id": 1, "urls": ["https://b"]}]`}, "are given twice"},
		"quorum of 3 of 2":  {[]string{"FENCEPOST_RPC_URLS=https://a,https://b", "FENCEPOST_RPC_QUORUM=3"}, "set rpc.quorum"},
		"one node twice":    {[]string{"FENCEPOST_RPC_URLS=https://a,https://b, https://a"}, "each once"},
		"1 at once of 2":    {[]string{"FENCEPOST_RPC_URLS=https://a,https://b", "FENCEPOST_RPC_MAX_IN_FLIGHT=1"}, "set rpc.maxInFlight"},
	} {
		if _, err := config.LoadForTests(with(c.given...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
