package scene

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/loadtest/report"
)

// The figures compare the attack with that on a sink. Ended streams of valid proxies are counted in both, with their
// causes.
func TestHostileReports(t *testing.T) {
	made := func(ack time.Duration, peak uint64, cpu time.Duration) *assault {
		a := &assault{endpointEdits: &endpointEdits{}, peak: peak, cpu: cpu, attackers: 5 * time.Second, took: 10 * time.Second}
		a.acks.Record(ack)
		return a
	}
	sink, under := made(10*time.Millisecond, 100e6, time.Second), made(30*time.Millisecond, 250e6, 4*time.Second)
	sink.missing, under.missing = 1, 2
	sink.lost = map[string]uint64{"io": 1}
	under.lost, under.example = map[string]uint64{"Unavailable": 4, "io": 2}, map[string]string{"Unavailable": "too slow"}
	under.counts = map[string]attack.Count{attack.Impersonation: {Tried: 7, Answers: 3, Came: map[string]uint64{"answered": 3}}}
	s := &stage{ctx: t.Context(), result: &reportScenario{}, measured: []*Server{{PID: 1}}}
	s.compareAssaults(sink, under)
	got := map[string]float64{}
	for _, row := range s.result.Rows {
		got[row.Name] = row.Value
	}
	for name, want := range map[string]float64{rowAtSink: 10, rowAttacked: 30, rowAttackRatio: 3, rowLost: 7, rowMissing: 3, rowForeign: 3, rowAttackRSS: 150,
		"servers' CPU, attackers aimed at the server": .4, "attackers' CPU, aimed at a sink": .5} {
		if v, ok := got[name]; !ok || v < .97*want || v > 1.03*want {
			t.Errorf("%s is %g, want %g", name, v, want)
		}
	}
	notes := strings.Join(s.result.Notes, "\n")
	for _, want := range []string{`at the server: 4 streams of good proxies ended: Unavailable, for example "too slow"`, "at a sink: 1 ", "Attack impersonation: 7 tries (answered 3)"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in:\n%s", want, notes)
		}
	}
}

// During one attack edits of endpoints continue while a process attacks. Streams that ended meanwhile are the
// difference of the counts, and the process has ended afterwards.
func TestAssault(t *testing.T) {
	f := &scripted{began: time.Now(), outcome: func(int) (proxy.Outcome, error) { return proxy.Outcome{Ack: &gauge.Histogram{}}, nil }}
	f.stats = func(time.Duration) (proxy.Stats, error) {
		n := uint64(3)
		if strings.Contains(f.done(), "watch") {
			n = 8
		}
		return proxy.Stats{Ended: map[string]uint64{"io": n, "dial": 2}}, nil
	}
	s := small(t, f)
	s.Scale, s.scenario.attack, s.servers = .001, 30*time.Second, []*Server{{Name: "a"}}
	pid := filepath.Join(t.TempDir(), "pid")
	s.AttackArgs = []string{"/bin/sh", "-c", `echo $$ > "$0"; trap 'echo "{\"silent\": {\"tried\": 5}}"; exit' TERM; exec 3>&-; while :; do sleep 0.05; done`, pid}
	a, err := s.assault(nil, nil, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.lost) != 1 || a.lost["io"] != 5 || a.counts["silent"].Tried != 5 || a.count == 0 {
		t.Errorf("%v ended, attacks %v, %d edits", a.lost, a.counts, a.count)
	}
	raw, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(raw))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the attackers are still there: %v", err)
	}
	s.AttackArgs = []string{"/bin/sh", "-c", "echo no such flag >&2; exit 1"}
	if _, err := s.assault(nil, nil, []int{3}); err == nil || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("attackers that do not start: %v", err)
	}
}

// If no cgroup can be created, the error names the requirements, and nothing is left behind.
func TestCageThatIsRefused(t *testing.T) {
	parent := t.TempDir() // no cgroup: it has no files of the kernel's
	if _, err := makeCage(parent, map[string]string{"cpu.max": "50000 100000"}); err == nil || !strings.Contains(err.Error(), "cpu.max") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, want := range []string{"root", "Delegate=cpu", "--attack-cpu 0"} {
		if !strings.Contains(cageNeeds, want) {
			t.Errorf("%q does not name %s", cageNeeds, want)
		}
	}
}

// A command in a cage is in its cgroup, with its quota, and the cgroup is deleted afterwards.
func TestCage(t *testing.T) {
	c, err := newCage(.5)
	if err != nil {
		t.Skip(err)
	}
	out, err := c.command("/bin/cat", "/proc/self/cgroup").Output()
	if err != nil || !strings.Contains(string(out), filepath.Base(c.dir)) {
		t.Errorf("%v\n%s", err, out)
	}
	quota := ""
	for _, name := range []string{"cpu.max", "cpu.cfs_quota_us"} {
		text, _ := os.ReadFile(filepath.Join(c.dir, name)) // one of the files exists
		quota += string(text)
	}
	if !strings.HasPrefix(quota, fmt.Sprint(cagePeriod/2)) {
		t.Errorf("its quota is %q", quota)
	}
	if err := c.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// Each attack without a credential has its figures with limits.
func TestPreauthReports(t *testing.T) {
	s := &stage{ctx: t.Context(), result: &reportScenario{}, measured: []*Server{{PID: 1}}}
	s.scenario.Targets, s.Scale = preauthTargets(), 1
	for _, a := range attack.All() {
		if !a.Credential {
			s.compareSieges(a.Name, &siege{cores: .1, same: time.Millisecond}, &siege{before: 10e6, peak: 300e6, cores: .4, another: 2 * time.Second, same: 3 * time.Second})
		}
	}
	got := map[string]report.Row{}
	for _, row := range s.result.Rows {
		got[row.Name] = row
	}
	if len(s.scenario.Targets) < 4*4 {
		t.Errorf("%d targets", len(s.scenario.Targets))
	}
	for name := range s.scenario.Targets {
		missed := !strings.HasSuffix(name, ofSame) // 3 s of 5 s
		if row, ok := got[name]; !ok || (row.Outcome == report.Miss) != missed {
			t.Errorf("%s: %+v", name, row)
		}
	}
	if row := got[rowOfAttack("silent", ofGrowth)]; row.Value < 289 || row.Value > 291 {
		t.Errorf("%+v", row)
	}
}

// All proxies of one account have their own names, and the account's services are the ones that are edited.
func TestOneAccount(t *testing.T) {
	s := small(t, nil)
	s.scenario.oneAccount = true
	names := map[string]bool{}
	for _, id := range s.identities(3, 20) {
		names[id.Name] = true
		if first := s.mesh.Workloads(1)[0]; id.Namespace != first.Namespace || id.ServiceAccount != first.ServiceAccount {
			t.Errorf("%s is of another account than %+v", id, first)
		}
	}
	if len(names) != 17 {
		t.Errorf("%d names of 17 proxies", len(names))
	}
	for _, k := range s.attackedServices() {
		if _, namespace := s.mesh.Host(k); namespace != s.mesh.Workloads(1)[0].Namespace {
			t.Errorf("service %d is of %s", k, namespace)
		}
	}
}
