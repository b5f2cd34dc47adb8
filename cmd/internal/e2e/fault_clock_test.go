package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/programs"
)

// aheadBy is the variable with the lead of clockBinary's and clockCtl's clocks over this machine's, so that one build
// of each serves every test.
const aheadBy = "NAVARCH_TEST_CLOCK_AHEAD"

// inBuild is the Go code by which these builds read aheadBy and return their time.
const inBuild = `ahead, err := time.ParseDuration(os.Getenv("` + aheadBy + `")); if err != nil { panic(err) }; return time.Now().Add(ahead)`

// clockBinary builds navarchd with a clock that differs from this machine's.
func clockBinary(t testing.TB) string {
	t.Helper()
	return programs.Changed(t, "clock", programs.Edit{File: "cmd/navarchd/authority.go", Text: "Time { return time.Now() }", By: "Time { " + inBuild + " }"})
}

// clockCtl builds navarchctl with a clock that differs from this machine's. navarchctl compares its clock with the
// replicas'.
func clockCtl(t testing.TB) string {
	t.Helper()
	return programs.ChangedProgram(t, "navarchctl", "ctl-clock",
		programs.Edit{File: "store/clock/clock.go", Text: "import (", By: "import (\n\t\"os\""},
		programs.Edit{File: "store/clock/clock.go", Text: "cfg.Wall = time.Now", By: "cfg.Wall = func() time.Time { " + inBuild + " }"})
}

// A root and a revocation list are published while clocks are ten minutes off, in either direction. Both arrive at the
// Envoys, and their agents, whose clocks are right, accept them. Valid certificates are accepted before, meanwhile and
// after; revoked ones are refused. If all processes are off, they sign. If only the proxies' replica is off, it signs
// nothing, and has a serving certificate from the two others.
func TestFaultClocksTenMinutesOff(t *testing.T) {
	for name, c := range map[string]struct {
		way, ahead string
		all        bool
	}{
		"one ahead": {"ahead", "10m", false}, "one behind": {"behind", "-10m", false},
		"all ahead": {"ahead", "10m", true}, "all behind": {"behind", "-10m", true},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			at := loopback.NetFor(t)
			seenBy(t, at+".2:9080")
			s := newSealable(t)
			write(t, s.dir, "mesh.yaml", strings.ReplaceAll(shopMesh, someNet, at))
			write(t, s.dir, "peers.yaml", peers("STRICT"))
			write(t, s.dir, "rule.yaml", strings.ReplaceAll(oneEach, someNet, at))
			wrong, ahead := clockBinary(t), append(slices.Clone(s.env), aheadBy+"="+c.ahead) // of no effect in other builds
			signer, ctl := navarchd(t), binary(t, "navarchctl")
			if c.all {
				signer, ctl = wrong, clockCtl(t)
			}
			run := func(program string, more ...string) *daemon {
				t.Helper()
				return startProgram(t, program, ahead, append(slices.Clone(s.flags), more...)...)
			}
			right := run(signer, "--roles=ingest,ca")
			eventually(t, patience, right.ready)
			roots := s.trust()
			second := run(signer, "--roles=ingest,ca")
			eventually(t, patience, second.ready)
			off := run(wrong, "--roles=xds,ca", "--ca-peers", right.secure+","+second.secure)
			if !c.all {
				off.said(t, 1, "this process signs nothing", "the clock of this machine is", c.way+" ") // "ahead of", or "behind the"
			}
			eventually(t, patience, s.enrolment(off).answers(off))
			if _, err := s.sign(off); !c.all && err == nil {
				t.Error("it signs")
			}
			ca := func(args ...string) string {
				t.Helper()
				asked := exec.Command(ctl, append(append([]string{"ca"}, args...), s.flags[:4]...)...)
				asked.Env = append(os.Environ(), aheadBy+"="+c.ahead)
				out, err := asked.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return string(out)
			}
			agents := map[string]proxy{}
			for name, ip := range map[string]string{"client": at + ".1", "other": at + ".3", "server": at + ".2"} {
				agents[name] = runAgent(t, off, s.data, roots, name, ip, "--ca-address", right.secure)
			}
			served, good := flows(at+".1:8000", "client"), flows(at+".3:8000", "other")
			eventually(t, patience, served)
			eventually(t, patience, good)
			rootsArrive(t, agents, func() { ca("rotate") }, good)
			certificateRevoked(t, ca, agents["other"], agents["server"], func() error {
				if code, _, err := call(at + ".3:8000"); err != nil || code != 503 {
					return fmt.Errorf("the revoked client: %d %v, want 503", code, err)
				}
				return nil
			}, good)
			if err := served(); err != nil {
				t.Errorf("who was not revoked: %v", err)
			}
		})
	}
}

// A third replica whose clock is 25 hours fast starts during a rotation. It reports its clock, signs nothing, and does
// not end the rotation, which waits for the holder of a certificate that has expired only by that clock. The others
// work normally.
// Promise: security-ca.md#clocks
func TestFaultReplicaWithAFastClock(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	good := []*daemon{s.start(), s.start()}
	for _, d := range good {
		eventually(t, patience, d.ready)
	}
	s.trust()
	if _, err := s.sign(good[0]); err != nil {
		t.Fatal(err)
	}
	operate := func(args ...string) []byte {
		t.Helper()
		out, err := exec.Command(binary(t, "navarchctl"), append(append([]string{"ca"}, args...), s.flags[:4]...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	operate("rotate")
	fast := startProgram(t, clockBinary(t), append(slices.Clone(s.env), aheadBy+"=25h"), s.flags...) // by it every certificate has ended
	fast.said(t, 1, "this process signs nothing", "the clock of this machine is 25h", "ahead of the median")
	fast.said(t, 1, "keyring cannot be read or advanced", "the keyring cannot be changed by this replica")
	if _, err := s.sign(fast); err == nil {
		t.Error("it has signed")
	}
	if off := fast.mustValue(t, "navarch_clock_off_seconds"); off < (24 * time.Hour).Seconds() {
		t.Errorf("the metric shows %v seconds", off)
	}
	var report keyring.Report
	if err := json.Unmarshal(operate("status", "-o", "json"), &report); err != nil {
		t.Fatal(err)
	}
	if report.Rotating != 2 || len(report.Waiting) != 1 {
		t.Errorf("the rotation does not wait: %+v", report)
	}
	for _, d := range good {
		if _, err := s.sign(d); err != nil {
			t.Error(err)
		}
	}
}
