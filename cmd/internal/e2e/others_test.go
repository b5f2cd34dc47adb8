package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tick is the unit of processor time in /proc, which is the same on all architectures that Linux and Go share (proc(5),
// USER_HZ).
const tick = 10 * time.Millisecond

// otherTimes measures the CPU time of programs that are not ours, which time limits at full size exclude.
var otherTimes otherPrograms

// otherPrograms samples processor time twice a second, once it is started.
type otherPrograms struct {
	mu      sync.Mutex
	samples []sample // oldest first
}

// sample is the processor time, since the machine started, of all programs but this test and its descendants. Of those
// the time of a process that was killed and not waited for yet is missing for that moment.
type sample struct {
	at   time.Time
	time time.Duration
}

// watch samples until the process ends.
func (o *otherPrograms) watch() {
	for ; ; time.Sleep(500 * time.Millisecond) {
		spent, err := otherTime()
		if err != nil {
			panic(err) // /proc is there wherever Navarch runs
		}
		o.mu.Lock()
		o.samples = append(o.samples, sample{time.Now(), spent})
		o.mu.Unlock()
	}
}

// during returns the processor time that other programs used in the interval of the given length that ends now.
func (o *otherPrograms) during(last time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.samples) == 0 {
		return 0
	}
	from, to := o.samples[0], o.samples[len(o.samples)-1]
	for _, s := range o.samples {
		if time.Since(s.at) >= last {
			from = s
		}
	}
	return max(to.time-from.time, 0)
}

// most returns the most processor time that other programs used in any interval of a length since then. Samples are
// half a second apart; for shorter intervals it returns a proportional share.
func (o *otherPrograms) most(since time.Time, length time.Duration) (most time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := 0
	for last, s := range o.samples {
		if s.at.Before(since) {
			first = last
			continue
		}
		for first+1 < last && s.at.Sub(o.samples[first+1].at) >= length {
			first++
		}
		if lasted := s.at.Sub(o.samples[first].at); lasted > 0 {
			took := s.time - o.samples[first].time
			most = max(most, time.Duration(float64(took)*min(1, length.Seconds()/lasted.Seconds())))
		}
	}
	return most
}

// otherTime returns the processor time of everything on this machine except our own processes, including time used by
// the hypervisor.
func otherTime() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(raw), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	var self, waited syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return 0, err
	}
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &waited); err != nil {
		return 0, err
	}
	ours := int64(0)
	for _, pid := range descendants(os.Getpid()) {
		ours += ticksOf(pid)
	}
	own := time.Duration(ours) * tick
	for _, t := range []syscall.Timeval{self.Utime, self.Stime, waited.Utime, waited.Stime} {
		own += time.Duration(t.Nano())
	}
	return time.Duration(user+nice+system+irq+softirq+steal)*tick - own, nil
}

// stat returns the fields of /proc/PID/stat after the name, which may contain any bytes: the state is the first. nil:
// the process has ended.
func stat(pid int) [][]byte {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
}

// descendants returns the processes below one.
func descendants(root int) (all []int) {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if fields := stat(pid); len(fields) > 1 {
			parent, _ := strconv.Atoi(string(fields[1]))
			children[parent] = append(children[parent], pid)
		}
	}
	for next := children[root]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, children[next[0]]...)
	}
	return all
}

// ticksOf returns the processor time, in ticks, of a process and of those that it waited for (proc(5), fields 14 to
// 17).
func ticksOf(pid int) (sum int64) {
	fields := stat(pid)
	if len(fields) < 15 {
		return 0
	}
	for _, f := range fields[11:15] {
		n, _ := strconv.ParseInt(string(f), 10, 64)
		sum += n
	}
	return sum
}

// judged records whether a test has failed.
type judged struct {
	testing.TB
	failed bool
}

func (j *judged) Helper()               {}
func (j *judged) Logf(string, ...any)   {}
func (j *judged) Errorf(string, ...any) { j.failed = true }

// At full size a missed time limit fails the test. Processor time of other programs is subtracted; on an idle machine
// it is zero.
func TestMissedLimitsFail(t *testing.T) {
	before := faultScale
	t.Cleanup(func() { faultScale = before })
	for _, c := range []struct {
		scale        int
		took, others time.Duration
		fails        bool
	}{
		{fullScale, 9 * time.Second, 0, false}, {fullScale, 11 * time.Second, 0, true}, {fullScale, 11 * time.Second, 2 * time.Second, false},
		{fullScale, time.Minute, 2 * time.Second, true}, {1, time.Minute, 0, false},
	} {
		faultScale = c.scale
		var j judged
		if atMost(&j, 10*time.Second, c.took, func() time.Duration { return c.others * time.Duration(runtime.NumCPU()) }, "it"); j.failed != c.fails {
			t.Errorf("%+v: failed %v", c, j.failed)
		}
	}
}

// The samples of the requested interval are counted; processes and their CPU times are found.
func TestOthersAreMeasured(t *testing.T) {
	if _, err := otherTime(); err != nil {
		t.Fatal(err)
	}
	o := otherPrograms{samples: []sample{{time.Now().Add(-time.Hour), 5 * time.Second}, {time.Now().Add(-time.Minute), 7 * time.Second}, {time.Now(), 10 * time.Second}}}
	if got := o.during(2 * time.Minute); got != 5*time.Second {
		t.Errorf("of the last two minutes %v", got)
	}
	if got := o.during(30 * time.Second); got != 3*time.Second {
		t.Errorf("of the last half minute %v", got)
	}
	began := time.Now()
	o.samples = nil
	for i, spent := range []time.Duration{0, 9, 9, 10, 14, 14} { // a second apart; of the first nobody asks
		o.samples = append(o.samples, sample{began.Add(time.Duration(i-2) * time.Second), spent * time.Second})
	}
	for length, want := range map[time.Duration]time.Duration{time.Second: 4 * time.Second, 2 * time.Second: 5 * time.Second, 500 * time.Millisecond: 2 * time.Second} {
		if got := o.most(began, length); got != want {
			t.Errorf("most in %v: %v, want %v", length, got, want)
		}
	}
	if ticksOf(os.Getpid()) == 0 || len(descendants(1)) == 0 {
		t.Error("no process is found")
	}
}
