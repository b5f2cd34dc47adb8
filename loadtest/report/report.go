// Package report defines the result of a load run: JSON with a documented schema (schema.json), a table for the
// terminal, and the comparison of two sets of runs.
//
// Owns: nothing. Reads: loadtest/gauge. Never: measures anything; chooses a target.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

// Version is the version of the schema. Every change that is visible to a reader of the JSON increments it. Results of
// another version are refused.
const Version = 3

// Result is the result of one run of one or several scenarios. The doc tags become the descriptions in schema.json.
type Result struct {
	Version   int        `json:"version" doc:"Version of this schema."`
	Label     string     `json:"label" doc:"What was measured, as the user named it: navarch, istiod, a branch."`
	Started   time.Time  `json:"started" doc:"When the run began."`
	Seconds   float64    `json:"seconds" doc:"How long the run took."`
	Command   []string   `json:"command" doc:"Arguments of the command, file names without their folders."`
	Machine   Machine    `json:"machine" doc:"Where the server and the harness ran."`
	Scenarios []Scenario `json:"scenarios" doc:"In the order in which they ran."`
}

// Machine describes the machine of a run.
type Machine struct {
	CPU    string `json:"cpu" doc:"Model of the processor."`
	Cores  int    `json:"cores" doc:"Processors that the harness may use; the server shares them where it runs on this machine."`
	Memory uint64 `json:"memory" doc:"Bytes of memory."`
	Kernel string `json:"kernel" doc:"Release of the kernel."`
	Go     string `json:"go" doc:"Version of Go that the harness was built with."`
	Load   string `json:"load,omitempty" doc:"Load averages when the run began: what else was running."`
}

// Scenario is the result of one scenario.
type Scenario struct {
	Name       string                `json:"name" doc:"Name on the command line."`
	Title      string                `json:"title" doc:"What was done, in a few words."`
	World      string                `json:"world" doc:"Generator settings: preset or file."`
	Scale      float64               `json:"scale" doc:"Factor on the sizes of world and fleet; targets are for 1."`
	Proxies    int                   `json:"proxies" doc:"Simulated proxies."`
	Replicas   int                   `json:"replicas" doc:"Servers."`
	MTLS       bool                  `json:"mtls" doc:"Whether the proxies spoke mTLS."`
	Started    time.Time             `json:"started" doc:"When the scenario began."`
	Seconds    float64               `json:"seconds" doc:"How long it took."`
	Rows       []Row                 `json:"rows" doc:"The figures that the scenario is about."`
	Latencies  []Latency             `json:"latencies,omitempty" doc:"Distributions of durations."`
	Series     []Series              `json:"series,omitempty" doc:"What was sampled over time."`
	Processes  []Process             `json:"processes,omitempty" doc:"What the servers' and the harness's processes on this machine used."`
	Traffic    map[string]Traffic    `json:"traffic,omitempty" doc:"By type (CDS, EDS, LDS, RDS, SDS, agent), over the whole scenario."`
	Violations map[string]Violations `json:"violations,omitempty" doc:"What the proxies found wrong, by kind; none where it is absent."`
	Ended      map[string]uint64     `json:"ended,omitempty" doc:"Streams that the proxies did not end themselves, by gRPC status."`
	Notes      []string              `json:"notes,omitempty" doc:"What a reader should know of the figures."`
	Failed     string                `json:"failed,omitempty" doc:"Why the scenario could not be run to its end; its figures are then void."`
}

// Row is one figure with its target and outcome.
type Row struct {
	Name    string   `json:"name" doc:"What was measured."`
	Unit    string   `json:"unit" doc:"Unit of value and target."`
	Value   float64  `json:"value" doc:"The figure."`
	Target  *float64 `json:"target,omitempty" doc:"What it should be at most, or at least where better is more; absent: it is only told."`
	Better  Better   `json:"better" doc:"Direction: less or more."`
	Outcome Outcome  `json:"outcome" doc:"pass, miss, or none where there is no target or the scale is not 1."`
	Compare string   `json:"compare,omitempty" doc:"What others reach, for people."`
}

// Better is the better direction of a figure.
type Better string

// The directions.
const (
	Less Better = "less"
	More Better = "more"
)

// Outcome is the result of comparing a figure with its target.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Miss Outcome = "miss"
	None Outcome = "none"
)

// Judge returns the row with its outcome set. A figure at another scale than 1 gets None, because costs and latencies
// do not grow linearly.
func (r Row) Judge(scale float64) Row {
	switch {
	case r.Target == nil || scale != 1:
		r.Outcome = None
	case r.Better == More && r.Value >= *r.Target, r.Better == Less && r.Value <= *r.Target:
		r.Outcome = Pass
	default:
		r.Outcome = Miss
	}
	return r
}

// Latency is a named distribution.
type Latency struct {
	Name      string           `json:"name" doc:"From what to what."`
	Histogram *gauge.Histogram `json:"histogram" doc:"Summary in milliseconds, and buckets as gauge.Histogram writes them."`
}

// Series is one quantity over time.
type Series struct {
	Name   string       `json:"name" doc:"Whose."`
	Group  string       `json:"group" doc:"Series of one group are drawn into one plot: memory, cpu, proxies."`
	Unit   string       `json:"unit" doc:"Unit of the values."`
	Points [][2]float64 `json:"points" doc:"Seconds since the scenario began, and the value."`
}

// Process is the resource usage of one process during the scenario.
type Process struct {
	Name    string  `json:"name" doc:"A server's name, or harness."`
	CPU     float64 `json:"cpu_seconds" doc:"Processor time, user and system."`
	PeakRSS uint64  `json:"peak_rss_bytes" doc:"Most resident memory that was sampled."`
	LastRSS uint64  `json:"last_rss_bytes" doc:"Resident memory at the end, or when the process ended."`
}

// Traffic counts the responses and requests of one resource type, as the proxies received and sent them. Bytes include
// the prefixes of gRPC messages.
type Traffic struct {
	Responses uint64 `json:"responses" doc:"Responses."`
	Resources uint64 `json:"resources" doc:"Resources in them."`
	Removed   uint64 `json:"removed" doc:"Names that they removed."`
	BytesIn   uint64 `json:"bytes_in" doc:"Bytes received."`
	Requests  uint64 `json:"requests" doc:"Requests, ACKs and NACKs among them."`
	BytesOut  uint64 `json:"bytes_out" doc:"Bytes sent."`
	Nacks     uint64 `json:"nacks" doc:"Refusals among the requests."`
}

// Violations counts the violations of one kind.
type Violations struct {
	Count    uint64   `json:"count" doc:"How often it was seen."`
	Examples []string `json:"examples,omitempty" doc:"The first few."`
}

// Violated returns the total number of violations.
func (s Scenario) Violated() uint64 {
	var n uint64
	for _, v := range s.Violations {
		n += v.Count
	}
	return n
}

// Good reports whether every scenario ran to its end, without violations and without a missed target.
func (r Result) Good() bool {
	for _, s := range r.Scenarios {
		if s.Failed != "" || s.Violated() > 0 {
			return false
		}
		for _, row := range s.Rows {
			if row.Outcome == Miss {
				return false
			}
		}
	}
	return true
}

// read parses a result. The error reports that it is not a result, has another version, or has unknown fields.
func read(r io.Reader) (Result, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return Result{}, err
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Result{}, fmt.Errorf("no result of a load run: %w", err)
	}
	if head.Version != Version {
		return Result{}, fmt.Errorf("a result of version %d; this program reads version %d", head.Version, Version)
	}
	var result Result
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result); err != nil {
		return Result{}, fmt.Errorf("result: %w", err)
	}
	return result, nil
}

// ReadFile reads a result from a file. Errors: the file cannot be read, is not a result, has another version, or has
// unknown fields.
func ReadFile(name string) (Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	result, err := read(f)
	if err != nil {
		return result, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return result, nil
}

// WriteFile writes a result atomically. Errors: a figure is infinite or not a number, or that of Replace.
func (r Result) WriteFile(name string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return Replace(name, append(raw, '\n'))
}

// Replace writes a file atomically. After an error of the file system the previous file is unchanged.
func Replace(name string, data []byte) error {
	if err := os.WriteFile(name+".new", data, 0o644); err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return os.Rename(name+".new", name)
}
