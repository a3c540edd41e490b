package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
)

// A row of about the size of an intent, with one index.
const (
	insertTable = `create table inserted (id uuid primary key, body jsonb not null, at timestamptz not null default clock_timestamp())`
	insertOne   = `insert into inserted (id, body) values (gen_random_uuid(), '{"to": "0x000000000000000000000000000000000000cafe", "value": "1"}');`
	insertTime  = 5 * time.Second
)

// insertRate makes pgbench insert rows, each in its own transaction.
func insertRate(ctx context.Context, r run) (_ result, err error) {
	defer steps.Return(&err)
	name, drop, err := r.cluster.Clone(ctx, "template1")
	steps.OK(err)
	defer drop()
	url := r.cluster.URL(name)
	script := filepath.Join(r.folder, "insert.sql")
	steps.OK(os.WriteFile(script, []byte(insertOne), 0o600))
	out, err := exec.CommandContext(ctx, pgbench(ctx, url), "--no-vacuum", "--protocol=prepared", "--file="+script,
		"--client="+strconv.Itoa(r.clients), "--jobs="+strconv.Itoa(min(processes, r.clients)),
		fmt.Sprintf("--time=%d", int(insertTime.Seconds())), url).CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	return result{figures: figures{insertsPerS: steps.Value(parseRate(out))}}, nil
}

// pgbench makes the table and returns the path of pgbench beside the server's binaries.
func pgbench(ctx context.Context, url string) (program string) {
	db := steps.Value(pgx.Connect(ctx, url))
	defer db.Close(ctx)
	steps.Value(db.Exec(ctx, insertTable))
	p := steps.Value(readProcess(int(db.PgConn().PID())))
	server, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PPID))
	steps.OK(err, "find pgbench beside the server")
	return filepath.Join(filepath.Dir(server), "pgbench")
}

var ratePattern = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

func parseRate(out []byte) (float64, error) {
	found := ratePattern.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench tells no tps: %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// chainRate sends presigned transactions in a burst and waits until all are in blocks.
func chainRate(ctx context.Context, r run) (_ result, err error) {
	defer steps.Return(&err)
	chain := steps.Value(devchain.Start(ctx, devchain.Options{BlockTime: time.Second}))
	defer func() { err = errors.Join(err, chain.Close()) }()
	client := steps.Value(rpc.DialContext(ctx, chain.URL()))
	defer client.Close()
	account := devchain.DevAccounts(1)[0]
	signed := presign(account, chain.ChainID(), r.transactions)
	retry.Pause(ctx, time.Until(nextBlock().Add(time.Duration(r.phase()*float64(time.Second)))))
	began := time.Now()
	for batch := range slices.Chunk(signed, perBatch) {
		steps.OK(client.BatchCallContext(ctx, batch))
		for _, one := range batch {
			steps.OK(one.Error)
		}
	}
	accepted := time.Since(began)
	node, address := ethclient.NewClient(client), common.Address(eip155.MustBytes(account.Address))
	for steps.Value(node.NonceAt(ctx, address, nil)) < uint64(r.transactions) {
		steps.OK(chain.WaitBlock(ctx, chain.Head()+1))
	}
	n := float64(r.transactions)
	return result{figures: figures{
		transactions: n, acceptedPerS: n / accepted.Seconds(), confirmedPerS: n / time.Since(began).Seconds(),
	}}, nil
}

// perBatch is how many transactions go to the node in one request.
const perBatch = 500

func presign(account devchain.Account, chainID uint64, n int) (all []rpc.BatchElem) {
	id, to := new(big.Int).SetUint64(chainID), common.HexToAddress("0xcafe")
	signer := types.LatestSignerForChainID(id)
	for i := range n {
		tx := steps.Value(types.SignNewTx(account.Key, signer, &types.DynamicFeeTx{
			ChainID: id, Nonce: uint64(i), Gas: 21_000, To: &to, Value: big.NewInt(1), GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(1e11),
		}))
		raw := hexutil.Encode(steps.Value(tx.MarshalBinary()))
		all = append(all, rpc.BatchElem{Method: "eth_sendRawTransaction", Args: []any{raw}, Result: new(string)})
	}
	return all
}
