package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), which is the same on every Linux that Go
// supports.
const ticksPerSecond = 100

// process is the content of /proc about a process, in seconds of user and system time.
type process struct {
	parent   int
	own      float64
	children float64 // of ended children that were waited for
}

func readProcess(pid int) (process, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, err
	}
	return parseProcess(text)
}

// parseProcess reads the fields of proc_pid_stat(5). The second one is a name in parentheses with any
// content.
func parseProcess(text []byte) (p process, err error) {
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const first = 3 // the number of fields[0]
	if len(fields) < 18-first {
		return p, fmt.Errorf("stat has %d fields", len(fields))
	}
	var ticks [4]float64
	for i := range ticks { // utime, stime, cutime, cstime
		if ticks[i], err = strconv.ParseFloat(fields[14-first+i], 64); err != nil {
			return p, err
		}
	}
	p.parent, err = strconv.Atoi(fields[4-first])
	p.own, p.children = (ticks[0]+ticks[1])/ticksPerSecond, (ticks[2]+ticks[3])/ticksPerSecond
	return p, err
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
	return &cpu{postmaster: p.parent, functions: map[int]float64{}}, nil
}

// readFunctions returns the time of these processes and of those read before.
func (c *cpu) readFunctions(pids []int) (sum float64) {
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil {
			c.functions[pid] = p.own
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
	sum = head.own + head.children
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil && p.parent == c.postmaster {
			sum += p.own
		}
	}
	return sum, nil
}

// ownCPU returns the time of this process: the node, Cloud Tasks, URL map and issuer.
func ownCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime)
}
