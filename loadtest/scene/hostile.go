package scene

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
)

const (
	attackers   = "127.0.0.66"    // source address of the attackers
	goodSources = "127.0.0.1/32"  // source address of the proxies: thousands behind one address, as behind a gateway
	attackRise  = 5 * time.Second // time from the attackers' start until edits begin
)

// attacked lets the proxies join and prepares the attack. It waits until the memory for that is returned, which would
// otherwise count as the attack's. Then it calls play.
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

// hostile edits endpoints of 2,000 proxies while all attacks go on at once: first aimed at a sink, then at the server,
// then together with those of somebody who may write the objects of one namespace.
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
	var services [3][]int // each is edited once at full size, see sides
	tenant, n := !s.scenario.oneAccount && len(s.Attacks) == 0, 2
	if tenant {
		n = 3
	}
	for i, k := range s.attackedServices() {
		services[i%n] = append(services[i%n], k)
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
	aimed := append([]string{"--addr", s.servers[0].Addr, "--pages", s.servers[0].Debug, "--webhooks", s.starter.webhooks}, credential...)
	under, err := s.assault(c, aimed, services[1])
	if err != nil {
		return err
	}
	s.compareAssaults(sink, under)
	if tenant {
		if err := s.quiet(); err != nil {
			return err
		}
		if err := s.assaultWithTenant(c, aimed, services[2]); err != nil {
			return err
		}
	}
	return s.equal()
}

// assaultWithTenant is an assault beside all attacks of a tenant at once.
func (s *stage) assaultWithTenant(c *cage, args []string, services []int) error {
	s.enter("edits of endpoints, attackers aimed at the server, and a tenant's objects")
	all := attack.Tenants()
	side, err := s.asTenant(all[len(all)-1])
	if err != nil {
		return err
	}
	both, err := s.assault(c, args, services)
	if err := errors.Join(err, side.end()); err != nil {
		return err
	}
	s.row(rowBothP99, "ms", ms(both.p99()))
	s.row(rowBothLost, "", float64(s.lostTo("the server, with a tenant's objects", both)))
	s.row(rowBothMissing, "", float64(both.missing))
	s.row(rowBothForeign, "", float64(both.counts[attack.Impersonation].Answers))
	s.cost(rowBothRSS, "MB", mb(both.peak))
	s.latency("commit to ACK: attackers and a tenant", &both.acks)
	return side.remove()
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

// attackersCage returns the cgroup for the attackers; nil: they run without one. The error reports that the scenario
// needs one server that was started here.
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

// lasts returns the duration of the attacks.
func (s *stage) lasts() time.Duration { return cmp.Or(s.AttackSpan, s.span(s.scenario.attack)) }

// assault contains the results of edits of endpoints during one attack.
type assault struct {
	*endpointEdits
	lost      map[string]uint64 // ended streams of good proxies, by cause
	example   map[string]string
	peak      uint64 // largest resident memory of the servers, in bytes
	cpu       time.Duration
	attackers time.Duration // CPU time of the attackers
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

// peak returns the largest resident memory of the servers until ctx ends, in bytes.
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

// compareAssaults adds the rows that compare an attack on the server with the same attack on a sink.
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

// lostTo returns the number of ended streams of good proxies, and notes the causes.
func (s *stage) lostTo(what string, a *assault) (lost uint64) {
	for _, how := range slices.Sorted(maps.Keys(a.lost)) {
		lost += a.lost[how]
		s.note("Attackers aimed at %s: %d streams of good proxies ended: %s, for example %q.", what, a.lost[how], how, a.example[how])
	}
	return lost
}

// stolen obtains the credential of the first workload, whose proxies are connected, and returns the attackers' flags
// for it.
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
	args := []string{"--cert", file("stolen.pem", chain), "--key",
		file("stolen.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})),
		"--token-file", file("stolen.token", []byte(token)), "--from", s.attackersAddress(),
		"--identity", thief.Namespace + "/" + thief.ServiceAccount, "--proxy", all[0].Pod + "." + thief.Namespace,
		"--victim", all[victim].Namespace + "/" + all[victim].ServiceAccount + "/" + all[victim].Pod,
		"--connections", strconv.Itoa(max(attack.MinConnections,
			int(attack.MaxConnections*scale))), "--names", strconv.Itoa(max(1000, int(200_000*scale)))}
	if only := s.Attacks; len(only) > 0 {
		args = append(args, "--only", strings.Join(only, ","))
	} else if s.scenario.oneAccount {
		args = append(args, "--only", strings.Join(accountAttacks, ","))
	}
	return args, err
}

// group writes a WorkloadGroup of that workload, with which machines register themselves. No service selects these
// machines: they cost work, and change no proxy.
func (s *stage) group() error {
	thief := s.identity(s.mesh.Workloads(1)[0])
	text := fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: vms, namespace: %s}\nspec: "+
		"{metadata: {labels: {machine: stolen}}, template: {serviceAccount: %s}}\n",
		thief.Namespace, thief.ServiceAccount)
	return os.WriteFile(filepath.Join(s.dir, "workloadgroup.yaml"), []byte(text), 0o600)
}

// accountAttacks are the attacks by which a client could get all streams of an account for itself.
var accountAttacks = []string{"mints", "csrs", "nodes", "reconnects"}

// attackersAddress returns the source address of the attackers. With oneAccount it is that of the proxies, because the
// account is behind one address.
func (s *stage) attackersAddress() string {
	if s.scenario.oneAccount {
		return netip.MustParsePrefix(goodSources).Addr().String()
	}
	return attackers
}
