package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// ChainEntry is one chain of the setting chains. A member that is not set has the value of the default
// chain's setting.
type ChainEntry struct {
	ID            uint64
	Namespace     string // "": EVM chains'
	URLs          []Secret
	BlockTime     time.Duration
	FeeKind       FeeKind
	Finality      txmanager.Finality
	Confirmations *int
	Quorum        int
	FinalizedTag  *bool
}

// ServedChain is the complete configuration of one chain.
type ServedChain struct {
	ID            uint64
	Namespace     string   // of its family, by CAIP-2
	URLs          []Secret // of its nodes, in order of preference; empty if a function needs no node
	Quorum        int      // 0: more than half of the nodes; of two, one
	BlockTime     time.Duration
	FeeKind       FeeKind
	Finality      txmanager.Finality
	Confirmations int
	FinalizedTag  bool // false: the chain has no block tag "finalized"
}

// Served are the chains of the deployment, the default one first.
func (c Config) Served() []ServedChain {
	served := []ServedChain{{
		ID: c.Chain.ID, Namespace: evmNamespace, URLs: c.RPC.URLs, Quorum: c.RPC.Quorum, BlockTime: c.Chain.BlockTime,
		FeeKind: c.Chain.FeeKind, Finality: c.Finality.Mode, Confirmations: c.Finality.Confirmations, FinalizedTag: c.Chain.FinalizedTag,
	}}
	all := served[0] // of each chain, unless its entry says otherwise
	for _, e := range c.Chains {
		one := all
		if one.ID, one.URLs, one.Namespace = e.ID, e.URLs, cmp.Or(e.Namespace, evmNamespace); e.ID != c.Chain.ID {
			one.Quorum = 0
		}
		one.Quorum, one.BlockTime = cmp.Or(e.Quorum, one.Quorum), cmp.Or(e.BlockTime, one.BlockTime)
		one.FeeKind, one.Finality = cmp.Or(e.FeeKind, one.FeeKind), cmp.Or(e.Finality, one.Finality)
		one.Confirmations = *cmp.Or(e.Confirmations, &one.Confirmations)
		one.FinalizedTag = *cmp.Or(e.FinalizedTag, &one.FinalizedTag)
		if e.ID == c.Chain.ID {
			served[0] = one
		} else {
			served = append(served, one)
		}
	}
	return served
}

// chainEntry is a [ChainEntry] in its JSON form.
type chainEntry struct {
	ID            uint64   `json:"id"`
	Namespace     string   `json:"namespace"`
	URLs          []string `json:"urls"`
	BlockTime     string   `json:"blockTime"`
	FeeKind       string   `json:"feeKind"`
	Finality      string   `json:"finality"`
	Confirmations *int     `json:"confirmations"`
	Quorum        *int     `json:"quorum"`
	FinalizedTag  *bool    `json:"finalizedTag"`
}

// evmNamespace is the CAIP-2 namespace of EVM chains.
const evmNamespace = "eip155"

// namespace matches a CAIP-2 namespace.
var namespace = regexp.MustCompile(`^[-a-z0-9]{3,8}$`)

// chainList parses a JSON list of chains, each once.
func chainList(p *[]ChainEntry) field {
	const want = `a JSON list such as [{"id": 8453, "urls": ["https://…"], "blockTime": "2s", "finality": "safe"}]. Each id is given once, ` +
		`with 1 to 9 different https URLs, or http to this machine. Further members are namespace, blockTime, feeKind, finality, finalizedTag, confirmations and quorum, in the ranges of their settings`
	f := hidden(bind(p, want, func(text string) ([]ChainEntry, bool) {
		list, err := readChains(text)
		return list, err == nil
	}))
	f.why = func(text string) error {
		_, err := readChains(text)
		return err
	}
	return f
}

// readChains parses the list. Its error names the wrong entry and member, and shows no value.
func readChains(text string) (list []ChainEntry, err error) {
	var written []json.RawMessage
	if err := json.Unmarshal([]byte(text), &written); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("it is no JSON from byte %d on", syntax.Offset)
		}
		return nil, errors.New("it is no JSON list")
	}
	for i, one := range written {
		e, err := readChain(one)
		if err == nil && slices.ContainsFunc(list, func(other ChainEntry) bool { return other.ID == e.ID }) {
			err = errors.New("id: an entry before has it too")
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d%s: %w", i+1, named(e.ID), err)
		}
		list = append(list, e)
	}
	return list, nil
}

// named is an entry's id in brackets, if it has one.
func named(id uint64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf(" (chain %d)", id)
}

func readChain(text []byte) (ChainEntry, error) {
	var written chainEntry
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&written); err != nil {
		return ChainEntry{ID: written.ID}, notRead(err)
	}
	return written.read()
}

// unknownMember matches [json.Decoder]'s error. A member that is not a plain word is not
// shown, since it may be a secret.
var unknownMember = regexp.MustCompile(`unknown field "([A-Za-z_]{1,40})"$`)

func notRead(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%s: it is a %s", wrong.Field, strings.Fields(wrong.Value)[0])
	}
	if m := unknownMember.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: there is no such member", m[1])
	}
	return errors.New("it is no object, or has an unknown member")
}

// read parses each member with the field of its setting.
func (w chainEntry) read() (e ChainEntry, err error) {
	e.ID, e.Confirmations, e.FinalizedTag = w.ID, w.Confirmations, w.FinalizedTag
	if w.ID < 1 || w.ID > maxChainID {
		return ChainEntry{}, fmt.Errorf("id: want 1 to %d", uint64(maxChainID))
	}
	urls := nodeURLs(&e.URLs)
	if !urls.set(strings.Join(w.URLs, ",")) || len(e.URLs) != len(w.URLs) {
		return e, fmt.Errorf("urls: want %d to %d https URLs, each once (http only for this machine: localhost, 127.0.0.1, [::1])", 1, maxNodes)
	}
	for _, part := range []struct {
		member, text string
		field        field
	}{
		{"namespace", w.Namespace, bind(&e.Namespace, "one of CAIP-2, such as eip155: 3 to 8 lower-case letters, digits and hyphens", func(text string) (string, bool) {
			return text, namespace.MatchString(text)
		})},
		{"blockTime", w.BlockTime, duration(&e.BlockTime, minBlockTime, maxBlockTime)},
		{"feeKind", w.FeeKind, choice(&e.FeeKind, FeeKindEIP1559, FeeKindLegacy)},
		{"finality", w.Finality, choice(&e.Finality, txmanager.ByConfirmations, txmanager.BySafe, txmanager.ByFinalized)},
	} {
		if part.text != "" && !part.field.set(part.text) {
			return e, fmt.Errorf("%s: want %s", part.member, part.field.want)
		}
	}
	if n := w.Confirmations; n != nil && (*n < 0 || *n > maxConfirmations) {
		return e, fmt.Errorf("confirmations: want 0 to %d", maxConfirmations)
	}
	if w.Quorum != nil {
		if e.Quorum = *w.Quorum; e.Quorum < 1 || e.Quorum > len(e.URLs) {
			return e, fmt.Errorf("quorum: want 1 to %d, the number of its urls", len(e.URLs))
		}
	}
	return e, nil
}

func (c *Config) chainRules() []rule {
	nodes, limit := len(c.RPC.URLs), 0
	for _, s := range c.Served() {
		limit = max(limit, len(s.URLs))
	}
	return []rule{{
		of:     []string{"chains", "chain.id", "rpc.urls"},
		broken: nodes > 0 && slices.ContainsFunc(c.Chains, func(e ChainEntry) bool { return e.ID == c.Chain.ID }),
		say:    "the default chain's nodes are given twice: leave rpc.urls out, or, in chains, the entry with the id of chain.id",
	}, {
		of:     []string{"rpc.quorum", "rpc.urls"},
		broken: nodes > 0 && c.RPC.Quorum > nodes,
		say:    "no transaction can end with a quorum above the number of nodes: set rpc.quorum to at most the number of rpc.urls",
	}, {
		of:     []string{"rpc.maxInFlight", "rpc.urls", "chains"},
		broken: limit > 1 && c.RPC.MaxInFlight < limit,
		say:    "a transaction is sent to all nodes of a chain at once: set rpc.maxInFlight to at least their number in rpc.urls, or in an entry of chains",
	}, {
		of:     []string{"finality.mode", "chain.finalizedTag", "chains"},
		broken: slices.ContainsFunc(c.Served(), func(s ServedChain) bool { return !s.FinalizedTag && s.Finality == txmanager.ByFinalized }),
		say:    "nothing could ever be final by a tag that the chain does not have: where chain.finalizedTag is false, set finality.mode to confirmations or safe, and so in each entry of chains",
	}}
}
