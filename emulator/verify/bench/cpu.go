package main

import (
	"github.com/prometheus/procfs"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), which is the same on every Linux that Go
// supports.
const ticksPerSecond = 100

func readProcess(pid int) (stat procfs.ProcStat, err error) {
	defer steps.Return(&err)
	return steps.Value(procfs.NewProc(pid)).Stat()
}

// cpu sums the time of processes, in seconds. An ended process counts with its last reading.
type cpu struct {
	postmaster int
	functions  map[int]float64 // by process id
}

// newCPU watches the cluster of the given backend process.
func newCPU(backend int) *cpu {
	p, err := readProcess(backend)
	steps.OK(err, "find the parent of Postgres' process ", backend)
	return &cpu{postmaster: p.PPID, functions: map[int]float64{}}
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
func (c *cpu) readPostgres() (sum float64) {
	head := steps.Value(readProcess(c.postmaster))
	sum = head.CPUTime() + float64(head.CUTime+head.CSTime)/ticksPerSecond
	for _, p := range steps.Value(procfs.AllProcs()) {
		if stat, err := p.Stat(); err == nil && stat.PPID == c.postmaster {
			sum += stat.CPUTime()
		}
	}
	return sum
}
