package main

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), which is the same on every Linux that Go
// supports.
const ticksPerSecond = 100

func readProcess(pid int) (stat procfs.ProcStat, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return stat, err
	}
	return p.Stat()
}

// cpu sums the time of processes, in seconds. An ended process counts with its last reading.
type cpu struct {
	postmaster int
	functions  map[int]float64 // by process id
}

// newCPU watches the cluster of the given backend process.
func newCPU(backend int) (*cpu, error) {
	p, err := readProcess(backend)
	if err != nil {
		return nil, fmt.Errorf("find the parent of Postgres' process %d: %w", backend, err)
	}
	return &cpu{postmaster: p.PPID, functions: map[int]float64{}}, nil
}

// readFunctions returns the time of these processes and of those read before.
func (c *cpu) readFunctions(pids []int) (sum float64) {
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil {
			c.functions[pid] = p.CPUTime()
		}
	}
	for _, seconds := range c.functions {
		sum += seconds
	}
	return sum
}

// readPostgres returns the time of the postmaster with its running and ended children.
func (c *cpu) readPostgres() (sum float64, err error) {
	head, err := readProcess(c.postmaster)
	if err != nil {
		return 0, err
	}
	sum = head.CPUTime() + float64(head.CUTime+head.CSTime)/ticksPerSecond
	all, err := procfs.AllProcs()
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == c.postmaster {
			sum += stat.CPUTime()
		}
	}
	return sum, err
}
