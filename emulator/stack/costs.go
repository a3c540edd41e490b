package stack

import (
	"encoding/json"
	"strings"
	"sync"
)

// Costs adds up the costs in the functions' log lines. A killed invocation wrote no line.
type Costs struct {
	mu         sync.Mutex
	byFunction map[string]Cost
}

// Cost is the cost of some invocations together.
type Cost struct {
	Invocations   int64 `json:"-"`
	SQLRoundTrips int64 `json:"sqlRoundTrips"`
	SQLStatements int64 `json:"sqlStatements"`
	Commits       int64 `json:"commits"`
	RPCRoundTrips int64 `json:"rpcRoundTrips"`
	Tasks         int64 `json:"tasks"`
}

func (c Cost) plus(d Cost) Cost {
	return Cost{
		c.Invocations + d.Invocations, c.SQLRoundTrips + d.SQLRoundTrips, c.SQLStatements + d.SQLStatements,
		c.Commits + d.Commits, c.RPCRoundTrips + d.RPCRoundTrips, c.Tasks + d.Tasks,
	}
}

// Minus returns the cost since an earlier one.
func (c Cost) Minus(d Cost) Cost {
	return c.plus(Cost{-d.Invocations, -d.SQLRoundTrips, -d.SQLStatements, -d.Commits, -d.RPCRoundTrips, -d.Tasks})
}

func (c *Costs) read(line string) {
	if !strings.Contains(line, `"message":"invocation"`) {
		return
	}
	var entry struct {
		Function string `json:"function"`
		Cost
	}
	if json.Unmarshal([]byte(line), &entry) != nil {
		return
	}
	entry.Invocations = 1
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byFunction[entry.Function] = c.byFunction[entry.Function].plus(entry.Cost)
}

// Of returns the cost of the named functions together.
func (c *Costs) Of(functions ...string) Cost {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum Cost
	for _, f := range functions {
		sum = sum.plus(c.byFunction[f])
	}
	return sum
}
