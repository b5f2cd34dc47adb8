package scene

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// The worker's protocol has one JSON value per line: requests on standard input and answers on standard output, matched
// by id. A worker ends with its input.

// call is one request; Op decides which arguments are used.
type call struct {
	ID         uint64           `json:"id"`
	Op         string           `json:"op"`
	Spec       *Spec            `json:"spec,omitempty"`
	Identities []proxy.Identity `json:"identities,omitempty"`
	Select     Select           `json:"select,omitzero"`
	Watch      []Watch          `json:"watch,omitempty"`
	Probe      uint64           `json:"probe,omitempty"`
	Deadline   time.Time        `json:"deadline,omitzero"`
	Committed  time.Time        `json:"committed,omitzero"`
	Reconnect  *proxy.Reconnect `json:"reconnect,omitempty"`
	Behaviour  *proxy.Behaviour `json:"behaviour,omitempty"`
}

// answer is the result of a call.
type answer struct {
	ID      uint64         `json:"id"`
	Error   string         `json:"error,omitempty"`
	Stats   *proxy.Stats   `json:"stats,omitempty"`
	Outcome *proxy.Outcome `json:"outcome,omitempty"`
	N       int            `json:"n,omitempty"`
	Bytes   uint64         `json:"bytes,omitempty"`
	By      map[string]int `json:"by,omitempty"`
}

// Work serves one fleet to the parent process until `in` ends. The error reports that the input is not a call. Errors
// of a call are in its answer.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{probes: map[uint64]Probe{}}
	defer w.close()
	var mu sync.Mutex // guards out
	encoder, decoder := json.NewEncoder(out), json.NewDecoder(in)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for {
		var c call
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		serve := func() {
			a := answer{}
			if err := w.do(ctx, c, &a); err != nil {
				a.Error = err.Error()
			}
			a.ID = c.ID
			mu.Lock()
			defer mu.Unlock()
			_ = encoder.Encode(a) // without a parent the input ends too
		}
		if c.Op == "await" || c.Op == "join" {
			wg.Go(serve) // slow calls run concurrently
		} else {
			serve()
		}
	}
}

type worker struct {
	fleet  *local
	mu     sync.Mutex
	probes map[uint64]Probe
	last   uint64
}

func (w *worker) close() {
	if w.fleet != nil {
		_ = w.fleet.Close() // ends with the process anyway
	}
}

func (w *worker) do(ctx context.Context, c call, a *answer) (err error) {
	if c.Op == "make" {
		w.fleet, err = newLocal(*c.Spec)
		return err
	}
	if w.fleet == nil {
		return fmt.Errorf("worker: %s before make", c.Op)
	}
	if !c.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.Deadline)
		defer cancel()
	}
	switch c.Op {
	case "add":
		return w.fleet.Add(c.Identities)
	case "remove":
		return w.fleet.Remove(c.Select)
	case "join":
		return w.fleet.WaitJoined(ctx)
	case "stats":
		s, err := w.fleet.Stats()
		a.Stats = &s
		return err
	case "reconnect":
		return w.fleet.Reconnect(c.Select, *c.Reconnect)
	case "behave":
		return w.fleet.Behave(c.Select, *c.Behaviour)
	case "equal":
		a.N, err = w.fleet.CheckEqual()
		return err
	case "footprint":
		a.Bytes, err = w.fleet.Footprint()
		return err
	case "trusting":
		a.N, err = w.fleet.Trusting()
		return err
	case "certified":
		a.By, err = w.fleet.Certified()
		return err
	case "renew":
		return w.fleet.Renew()
	}
	return w.probe(ctx, c, a)
}

// probe serves the calls about probes.
func (w *worker) probe(ctx context.Context, c call, a *answer) error {
	if c.Op == "watch" {
		p, err := w.fleet.Watch(c.Watch)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last++
		w.probes[w.last] = p
		a.N = int(w.last)
		return err
	}
	w.mu.Lock()
	p := w.probes[c.Probe]
	if c.Op == "outcome" {
		delete(w.probes, c.Probe)
	}
	w.mu.Unlock()
	if p == nil {
		return fmt.Errorf("worker: %s of an unknown probe", c.Op)
	}
	switch c.Op {
	case "await":
		return p.Await(ctx)
	case "outcome":
		o, err := p.Outcome(c.Committed)
		a.Outcome = &o
		return err
	}
	return fmt.Errorf("worker: unknown call %q", c.Op)
}

// remote is a worker process, as its parent sees it.
type remote struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex
	last uint64
	wait map[uint64]chan answer
	gone chan struct{}
}

// startRemote starts argv, which must call Work, and makes a fleet in it.
func startRemote(argv []string, spec Spec) (*remote, error) {
	r := &remote{cmd: exec.Command(argv[0], argv[1:]...), wait: map[uint64]chan answer{}, gone: make(chan struct{})}
	r.cmd.Stderr = os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the parent handles interrupts of the terminal
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	go r.read(out)
	if _, err := r.call(context.Background(), call{Op: "make", Spec: &spec}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *remote) read(out io.Reader) {
	decoder := json.NewDecoder(out)
	for {
		var a answer
		if err := decoder.Decode(&a); err != nil {
			close(r.gone)
			return
		}
		r.mu.Lock()
		c := r.wait[a.ID]
		delete(r.wait, a.ID)
		r.mu.Unlock()
		if c != nil {
			c <- a
		}
	}
}

func (r *remote) call(ctx context.Context, c call) (answer, error) {
	done := make(chan answer, 1)
	c.Deadline, _ = ctx.Deadline()
	r.mu.Lock()
	r.last++
	c.ID = r.last
	r.wait[c.ID] = done
	raw, err := json.Marshal(c)
	if err == nil {
		_, err = r.in.Write(append(raw, '\n'))
	}
	r.mu.Unlock()
	if err != nil {
		return answer{}, fmt.Errorf("worker, %s: %w", c.Op, err)
	}
	select {
	case a := <-done:
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-r.gone:
		return answer{}, fmt.Errorf("worker, %s: the process has ended", c.Op)
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// close ends the worker by the end of its input, or after a while by a signal. Ten thousand TLS connections need time
// to close.
func (r *remote) close() error {
	_ = r.in.Close()
	select {
	case <-r.gone:
		return r.cmd.Wait()
	case <-time.After(30 * time.Second):
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait() // the process was killed: the measurements stay valid
		return nil
	}
}
