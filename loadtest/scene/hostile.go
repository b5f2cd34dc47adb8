package scene

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
)

const (
	attackers   = "127.0.0.66"    // where they come from
	goodSources = "127.0.0.1/32"  // where the proxies come from: thousands behind one address, as behind a gateway
	attackRise  = 5 * time.Second // from the attackers' start until edits begin
)

// attacked has the proxies join, prepares what the attack needs, waits until what all that took was given back, or it would count as the
// attack's, and plays.
func (s *stage) attacked(prepare func() error, play func(*cage) error) (err error) {
	c, err := s.attackersCage()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.remove()) }()
	if err := s.joined(nil); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	_, peak := usage(s.watched())
	if _, err := s.settledMemory(peak); err != nil {
		return err
	}
	return play(c)
}

// hostile edits endpoints of 2,000 proxies while all attacks go on at once: first aimed at a sink, then at the server.
func hostile(s *stage) error {
	var credential []string
	prepare := func() (err error) {
		if credential, err = s.stolen(); err == nil {
			err = s.group()
		}
		return err
	}
	return s.attacked(prepare, func(c *cage) error { return s.playHostile(c, credential) })
}

func (s *stage) playHostile(c *cage, credential []string) error {
	var services [2][]int // each is edited once at full size, see sides
	for i, k := range s.attackedServices() {
		services[i%2] = append(services[i%2], k)
	}
	s.enter("edits of endpoints, attackers aimed at a sink")
	sink, err := s.assault(c, append([]string{"--sink"}, credential...), services[0])
	if err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
		return err
	}
	s.enter("edits of endpoints, attackers aimed at the server")
	under, err := s.assault(c, append([]string{"--addr", s.servers[0].Addr, "--pages", s.servers[0].Debug, "--webhooks", s.starter.webhooks}, credential...), services[1])
	if err != nil {
		return err
	}
	s.compareAssaults(sink, under)
	return s.equal()
}

// attackedServices are those whose endpoints change: all, or those that the proxies of the one account see.
func (s *stage) attackedServices() (all []int) {
	namespace := s.mesh.Workloads(1)[0].Namespace
	for k := range s.mesh.Settings.Services {
		if _, of := s.mesh.Host(k); !s.scenario.oneAccount || of == namespace {
			all = append(all, k)
		}
	}
	return all
}

// attackersCage is where the attackers of one server are to run that was started here; nil: nowhere in particular.
func (s *stage) attackersCage() (*cage, error) {
	if s.starter == nil || len(s.servers) > 1 {
		return nil, errors.New("one server is attacked that was started here")
	}
	if s.AttackCPU > 0 {
		return newCage(s.AttackCPU)
	}
	s.note("The attackers had no cgroup: what processor time they took, nobody else had.")
	return nil, nil
}

// lasts is for how long attacks go on.
func (s *stage) lasts() time.Duration { return cmp.Or(s.AttackSpan, s.span(s.scenario.attack)) }

// assault is what came of edits of endpoints during one attack.
type assault struct {
	*endpointEdits
	lost      map[string]uint64 // good proxies' streams that ended, by how
	example   map[string]string
	peak      uint64 // of the servers' resident memory, bytes
	cpu       time.Duration
	attackers time.Duration // their processor time
	took      time.Duration
	counts    map[string]attack.Count
}

// assault runs the attackers, and edits endpoints meanwhile.
func (s *stage) assault(c *cage, args []string, services []int) (*assault, error) {
	before, err := s.fleet.Stats()
	if err != nil {
		return nil, err
	}
	a, cpu0, began := &assault{lost: map[string]uint64{}}, spent(s.watched()), time.Now()
	argv := append(slices.Clone(s.AttackArgs), args...)
	attacking, err := startAttack(c, argv)
	if err != nil {
		return nil, err
	}
	defer attacking.kill()
	watching, stop := context.WithCancel(s.ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { a.peak = s.peak(watching) })
	timer := time.NewTimer(s.span(attackRise))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-attacking.gone:
		return nil, attacking.early()
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	if a.endpointEdits, err = s.editAll(services, s.lasts()); err != nil {
		return nil, err
	}
	stop()
	wg.Wait()
	a.took, a.cpu = time.Since(began), spent(s.watched())-cpu0
	after, err := s.fleet.Stats()
	if err != nil {
		return nil, err
	}
	for how, n := range after.Ended {
		if n > before.Ended[how] {
			a.lost[how] = n - before.Ended[how]
		}
	}
	a.example = after.Errors
	a.counts, a.attackers, err = attacking.end()
	return a, errors.Join(err, s.servers[0].alive())
}

// peak is the most resident memory that the servers have until ctx ends.
func (s *stage) peak(ctx context.Context) (most uint64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		sum := uint64(0)
		for _, one := range s.watched() {
			if p, err := gauge.Glance(one.PID); err == nil {
				sum += p.RSS
			}
		}
		most = max(most, sum)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return most
		}
	}
}

// compareAssaults tells what an attack did, against the same one aimed at a sink.
func (s *stage) compareAssaults(sink, under *assault) {
	p99 := func(a *assault) time.Duration { return a.acks.Quantile(.99) }
	s.row(rowAtSink, "ms", ms(p99(sink)))
	s.row(rowAttacked, "ms", ms(p99(under)))
	s.row(rowAttackRatio, "", float64(p99(under))/float64(max(1, p99(sink))))
	s.row(rowLost, "", float64(s.lostTo("a sink", sink)+s.lostTo("the server", under)))
	s.row(rowMissing, "", float64(sink.missing+under.missing))
	s.row(rowForeign, "", float64(under.counts[attack.Impersonation].Answers))
	s.cost(rowAttackRSS, "MB", mb(under.peak)-mb(sink.peak))
	s.cost("RSS, attackers aimed at a sink", "MB", mb(sink.peak))
	s.cost("servers' CPU, attackers aimed at a sink", "cores", sink.cpu.Seconds()/sink.took.Seconds())
	s.cost("servers' CPU, attackers aimed at the server", "cores", under.cpu.Seconds()/under.took.Seconds())
	s.row("attackers' CPU, aimed at a sink", "cores", sink.attackers.Seconds()/sink.took.Seconds())
	s.row("attackers' CPU, aimed at the server", "cores", under.attackers.Seconds()/under.took.Seconds())
	s.latency("commit to ACK: attackers aimed at a sink", &sink.acks)
	s.latency("commit to ACK: attackers aimed at the server", &under.acks)
	for _, name := range slices.Sorted(maps.Keys(under.counts)) {
		s.note("Attack %s: %s.", name, under.counts[name])
	}
}

// lostTo is how many streams of good proxies ended, and notes why.
func (s *stage) lostTo(what string, a *assault) (lost uint64) {
	for _, how := range slices.Sorted(maps.Keys(a.lost)) {
		lost += a.lost[how]
		s.note("Attackers aimed at %s: %d streams of good proxies ended: %s, for example %q.", what, a.lost[how], how, a.example[how])
	}
	return lost
}

// stolen gets the credential of the first workload, of which proxies are connected, and gives the attackers' flags for it.
func (s *stage) stolen() ([]string, error) {
	certs, err := newCertifier(*s.TLS.Authority)
	if err != nil {
		return nil, err
	}
	all := s.mesh.Workloads(s.proxies())
	thief := s.identity(all[0])
	victim := slices.IndexFunc(all, func(w mesh.Workload) bool { return w.Namespace != thief.Namespace })
	if victim < 0 {
		return nil, errors.New("the mesh has no proxy of a second namespace")
	}
	leaf, err := certs.certificate(thief)
	if err != nil {
		return nil, err
	}
	token, err := certs.minter.token(thief, certs.authority.EachPod)
	if err != nil {
		return nil, err
	}
	var chain []byte
	for _, der := range leaf.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(certs.private)
	if err != nil {
		return nil, err
	}
	file := func(name string, text []byte) string {
		path := filepath.Join(s.starter.dir, name)
		err = errors.Join(err, os.WriteFile(path, text, 0o600))
		return path
	}
	scale := min(1, s.Scale)
	args := []string{"--cert", file("stolen.pem", chain), "--key", file("stolen.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})),
		"--token-file", file("stolen.token", []byte(token)), "--from", s.attackersAddress(),
		"--identity", thief.Namespace + "/" + thief.ServiceAccount, "--proxy", all[0].Pod + "." + thief.Namespace,
		"--victim", all[victim].Namespace + "/" + all[victim].ServiceAccount + "/" + all[victim].Pod,
		"--connections", strconv.Itoa(max(attack.MinConnections, int(attack.MaxConnections*scale))), "--names", strconv.Itoa(max(1000, int(200_000*scale)))}
	if only := s.Attacks; len(only) > 0 {
		args = append(args, "--only", strings.Join(only, ","))
	} else if s.scenario.oneAccount {
		args = append(args, "--only", strings.Join(accountAttacks, ","))
	}
	return args, err
}

// group writes a WorkloadGroup of the workload whose credential is stolen, by which machines register themselves. No service selects them: they cost what they cost, and change no proxy.
func (s *stage) group() error {
	thief := s.identity(s.mesh.Workloads(1)[0])
	text := fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: vms, namespace: %s}\nspec: {metadata: {labels: {machine: stolen}}, template: {serviceAccount: %s}}\n",
		thief.Namespace, thief.ServiceAccount)
	return os.WriteFile(filepath.Join(s.dir, "workloadgroup.yaml"), []byte(text), 0o600)
}

// accountAttacks are what somebody does who wants the streams of an account for themselves.
var accountAttacks = []string{"mints", "csrs", "nodes", "reconnects"}

// attackersAddress is where they come from: where the proxies do, if they are to be one account behind one address.
func (s *stage) attackersAddress() string {
	if s.scenario.oneAccount {
		return netip.MustParsePrefix(goodSources).Addr().String()
	}
	return attackers
}

// attacking is the process of the attackers.
type attacking struct {
	cmd         *exec.Cmd
	out, failed bytes.Buffer
	gone        chan struct{} // closed when it has ended
	ended       error
}

// startAttack starts argv, which must print its counts when it is asked to end, and returns when it can be asked.
func startAttack(c *cage, argv []string) (*attacking, error) {
	said, says, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the attackers: %w", err)
	}
	defer said.Close()
	a := &attacking{cmd: c.command(append(slices.Clone(argv), "--ready-fd=3")...), gone: make(chan struct{})}
	a.cmd.ExtraFiles = []*os.File{says} // its number is 3 (os/exec)
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.failed
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = launch(a.cmd.Start)
	says.Close()
	if err != nil {
		return nil, fmt.Errorf("start the attackers: %w", err)
	}
	go func() {
		defer close(a.gone)
		a.ended = a.cmd.Wait()
	}()
	_ = said.SetReadDeadline(time.Now().Add(patience))
	if _, err := said.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // the attackers close it, or end
		a.kill()
		return nil, fmt.Errorf("start the attackers: not ready: %w", err)
	}
	return a, nil
}

// early is the error of attackers that ended without being asked to.
func (a *attacking) early() error {
	return fmt.Errorf("the attackers ended by themselves (%v): %s", a.ended, a.failed.Bytes())
}

// end asks it to end, and gives its counts and its processor time. One that has ended before is an error.
func (a *attacking) end() (counts map[string]attack.Count, cpu time.Duration, err error) {
	select {
	case <-a.gone:
		return nil, 0, a.early()
	default:
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
	select {
	case <-a.gone:
	case <-time.After(patience):
		return nil, 0, errors.New("the attackers do not end")
	}
	if err = a.ended; err == nil {
		err = json.Unmarshal(a.out.Bytes(), &counts)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the attackers: %w: %s", err, a.failed.Bytes())
	}
	return counts, a.cmd.ProcessState.UserTime() + a.cmd.ProcessState.SystemTime(), nil
}

// kill ends it where it has not ended yet.
func (a *attacking) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.gone
}
