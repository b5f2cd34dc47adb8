package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/store/loopback"
)

// Server is one measured process, started by the harness or by the user.
type Server struct {
	Name  string
	Addr  string // host:port of xDS
	Debug string // host:port of the debug pages; empty: unknown
	// Metrics is the host:port of a metrics page in Prometheus' format; empty: unknown.
	Metrics string
	PID     int // 0: not on this machine

	cmd    *exec.Cmd // nil: started by the user
	args   []string
	log    string
	exited chan struct{}
}

// starter starts navarchd processes on loopback, and ends only those.
type starter struct {
	binary     string
	dir        string // folder of this scenario for data and logs
	config     string // the folder of YAML
	kubeconfig string // of the cluster that replaces the folder config; empty: no cluster
	ca         string // folder of certificates; empty: plain text
	issuer     string // folder of a key for tokens, if the servers are the CA and replace the folder ca; empty: they are not
	webhooks   string // host:port at which the one server answers reviews; empty: it has no webhooks
	etcd       []string
	mesh       string
	env        []string
	flags      []string // further flags
	all        []*Server
}

// start starts one process. It listens on loopback only.
func (s *starter) start(name string, args ...string) (*Server, error) {
	var ports [4]string
	for i := range ports {
		var err error
		if ports[i], err = loopback.Address(); err != nil {
			return nil, err
		}
	}
	args = append(args, "--ctrlz-addr", "", "--http-addr", ports[1], "--monitoring-addr",
		ports[2], "--mesh", s.mesh, "--log-level", "warn", "--shutdown-duration", "5s")
	args = append(args, s.flags...)
	if s.issuer != "" {
		args = append(args, "--secure-grpc-addr", ports[0], "--token-issuer", tokenIssuer, "--token-keys", filepath.Join(s.issuer, fileKeys))
	} else if s.ca == "" {
		args = append(args, "--grpc-addr", ports[0], "--secure-grpc-addr", "")
	} else {
		args = append(args, "--secure-grpc-addr", ports[0], "--tls-cert",
			filepath.Join(s.ca, fileServer), "--tls-key", filepath.Join(s.ca, fileServerKey),
			"--tls-client-ca", filepath.Join(s.ca, fileRoot))
	}
	return s.launch(&Server{Name: name, Addr: ports[0],
		Debug: ports[1], Metrics: ports[2], args: args, log: filepath.Join(s.dir, name+".log")})
}

// again starts a process that has ended, at the same addresses.
func (s *starter) again(ended *Server) (*Server, error) {
	return s.launch(&Server{Name: ended.Name, Addr: ended.Addr, Debug: ended.Debug, Metrics: ended.Metrics, args: ended.args, log: ended.log})
}

func (s *starter) launch(one *Server) (*Server, error) {
	out, err := os.OpenFile(one.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	one.exited = make(chan struct{})
	one.cmd = exec.Command(s.binary, one.args...)
	// Allows the harness to measure the server's memory.
	one.cmd.Stdout, one.cmd.Stderr = out, out
	// Backends are at loopback addresses.
	one.cmd.Env = append(append(os.Environ(), "NAVARCH_DUMPABLE=true", "NAVARCH_GATEWAY_LOCAL_DESTINATIONS=true"), s.env...)
	one.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := launch(one.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", one.Name, err)
	}
	one.PID = one.cmd.Process.Pid
	go func() {
		_ = one.cmd.Wait() // ProcessState has the result
		close(one.exited)
	}()
	s.all = append(s.all, one)
	return one, nil
}

// launches runs functions on one thread that never ends. The kernel ends child processes when their parent thread dies,
// so a harness that is killed leaves no processes behind.
var launches = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
})

func launch(start func() error) error {
	done := make(chan error, 1)
	launches() <- func() { done <- start() }
	return <-done
}

// cluster starts n replicas: one process with all roles, or one that writes and n that serve. writer is the process
// that writes.
func (s *starter) cluster(n int) (writer *Server, replicas []*Server, err error) {
	store := append(s.store(), s.source()...)
	if n == 1 {
		roles := "ingest,xds"
		if s.issuer != "" {
			roles += ",ca"
		}
		if s.webhooks != "" {
			roles += ",admit"
		}
		one, err := s.start("navarchd", append(store, "--roles", roles)...)
		return one, []*Server{one}, err
	}
	if writer, err = s.start("ingest", append(store, "--roles", "ingest")...); err != nil {
		return nil, nil, err
	}
	for range n {
		one, err := s.replica()
		if err != nil {
			return nil, nil, err
		}
		replicas = append(replicas, one)
	}
	return writer, replicas, nil
}

// store returns the flags of etcd.
func (s *starter) store() []string {
	if len(s.etcd) > 0 {
		return []string{"--etcd-endpoints", strings.Join(s.etcd, ",")}
	}
	return []string{"--data-dir", filepath.Join(s.dir, "data")}
}

// source returns the flags of the configuration's source.
func (s *starter) source() []string {
	if s.kubeconfig != "" {
		return []string{"--kubeconfig", s.kubeconfig, "--https-addr=" + s.webhooks}
	}
	if s.webhooks != "" {
		return []string{"--config-dir", s.config, "--https-addr=" + s.webhooks}
	}
	return []string{"--config-dir", s.config}
}

// replica starts one more process that only serves. An embedded etcd is reached over the writer's socket.
func (s *starter) replica() (*Server, error) {
	endpoints := s.etcd
	if len(endpoints) == 0 {
		endpoints = []string{"unix://" + filepath.Join(s.dir, "data", "etcd.sock")}
	}
	name := fmt.Sprintf("replica-%d", len(s.all))
	return s.start(name, "--etcd-endpoints", strings.Join(endpoints, ","), "--roles", "xds")
}

// stop ends a process of the harness: SIGTERM first, SIGKILL after the grace period.
func (s *Server) stop(grace time.Duration) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.exited:
	case <-time.After(grace):
		s.kill()
	}
}

// kill ends a process as a crash would.
func (s *Server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

func (s *starter) stop() {
	for i := len(s.all) - 1; i >= 0; i-- {
		s.all[i].stop(10 * time.Second)
	}
}

// alive returns an error, with the end of the log, if a process of the harness has ended by itself.
func (s *Server) alive() error {
	if s.cmd == nil {
		return nil
	}
	select {
	case <-s.exited:
		raw, _ := os.ReadFile(s.log)
		return fmt.Errorf("%s has ended (%v): %s", s.Name, s.cmd.ProcessState, raw[max(0, len(raw)-1000):])
	default:
		return nil
	}
}

// errNoPage is the error for a debug page that a server does not have.
var errNoPage = errors.New("no such page")

// page reads a JSON page of a server, within five seconds.
func (s *Server) page(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	raw, err := s.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// ask sends a request to a page of a server, and returns the body of a successful answer.
func (s *Server) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	if s.Debug == "" {
		return nil, errNoPage
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Debug+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNotFound:
		return nil, errNoPage
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s: %.200s", path, res.Status, raw)
	}
	return raw, nil
}

// commit is one entry of the page of commits: one batch that the ingester wrote.
type commit struct {
	Revision  int64     `json:"revision"`
	Event     time.Time `json:"event"`     // arrival of the oldest change in the batch
	Committed time.Time `json:"committed"` // time of etcd's answer
	Puts      int       `json:"puts"`      // objects written
	Deletes   int       `json:"deletes"`
}

// commitsPage lists the newest commits, oldest first.
const commitsPage = "/debug/commits"

// committed returns the time of the first commit after an edit; ok is false if the server does not report commits.
func (s *Server) committed(ctx context.Context, edit time.Time) (at time.Time, ok bool) {
	var all []commit
	if s == nil || s.page(ctx, commitsPage, &all) != nil {
		return time.Time{}, false
	}
	for _, c := range all {
		if c.Committed.After(edit) {
			return c.Committed, true
		}
	}
	return time.Time{}, false
}

// wrote returns the time of the first commit of a record (kind/namespace/name) after an edit, and the arrival of the
// oldest change of that batch; ok is false if the server does not report commits.
func (s *Server) wrote(ctx context.Context, record string, edit time.Time) (at, event time.Time, ok bool) {
	var all []commit
	if s == nil || record == "" || s.page(ctx, commitsPage+"?record="+url.QueryEscape(record), &all) != nil {
		return at, event, false
	}
	for _, c := range all {
		if c.Committed.After(edit) {
			return c.Committed, c.Event, true
		}
	}
	return at, event, false
}

// snapshot counts the records of a replica's snapshot by kind.
func (s *Server) snapshot(ctx context.Context) (map[string]int, error) {
	var snapshot struct {
		Records map[string]int `json:"records"`
	}
	err := s.page(ctx, "/debug/snapshot", &snapshot)
	return snapshot.Records, err
}

// holds returns nil once a replica has the given numbers of records by kind.
func (s *Server) holds(ctx context.Context, want map[string]int) error {
	records, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	for kind, n := range want {
		if records[kind] < n {
			return fmt.Errorf("%s has %d of %d %ss", s.Name, records[kind], n, kind)
		}
	}
	return nil
}

// loaded returns nil once a replica has a snapshot with that many services.
func (s *Server) loaded(ctx context.Context, services int) error {
	records, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	if n := records["Service"] + records["ServiceEntry"]; n < services {
		return fmt.Errorf("%d of %d services", n, services)
	}
	return nil
}

// spent returns the sum of the processes' CPU times. Processes that have ended or are not on this machine count as 0.
func spent(servers []*Server) (cpu time.Duration) {
	for _, s := range servers {
		if s.PID == 0 {
			continue
		}
		if used, err := gauge.ReadCPU(s.PID); err == nil {
			cpu += used
		}
	}
	return cpu
}

// usage returns the sums of the processes' CPU times and resident memory in bytes, under the same rule as spent.
func usage(servers []*Server) (cpu time.Duration, rss uint64) {
	for _, s := range servers {
		if s.PID == 0 {
			continue
		}
		if p, err := gauge.ReadProcess(s.PID); err == nil {
			cpu += p.CPU()
			rss += p.RSS
		}
	}
	return cpu, rss
}
