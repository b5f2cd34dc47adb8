package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// podOf makes a Pod of names: init containers with "i:", sidecars with "s:", applications else.
func podOf(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}
	always := corev1.ContainerRestartPolicyAlways
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "i:"):
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
		case strings.HasPrefix(name, "s:"):
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: &always})
		default:
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		}
	}
	return p
}

// next returns a machine's actions at a number of seconds: "+a" for a start, "-a 30s" for a stop, "@10s" for the time
// of the next call.
func next(m *Machine, second int) string {
	at := t0.Add(time.Duration(second) * time.Second)
	actions, wake := m.Next(at)
	var all []string
	for _, a := range actions {
		if a.Start {
			all = append(all, "+"+a.Container)
		} else {
			all = append(all, fmt.Sprintf("-%s %s", a.Container, a.Grace))
		}
	}
	if !wake.IsZero() {
		all = append(all, "@"+wake.Sub(t0).String())
	}
	return strings.Join(all, " ")
}

// do applies events at a second: "begun a", "hooked a", "run a" (both), "exit a 1", "started a", "ready a", "stop 30".
func do(m *Machine, second int, event string) {
	at := t0.Add(time.Duration(second) * time.Second)
	word, rest, _ := strings.Cut(event, " ")
	name, number, _ := strings.Cut(rest, " ")
	var n int
	_, _ = fmt.Sscan(number, &n)
	switch word {
	case "begun":
		m.Begun(name, "id", at)
	case "hooked":
		m.Hooked(name)
	case "run":
		m.Begun(name, "id", at)
		m.Hooked(name)
	case "exit":
		m.Exited(name, n, 0, "", at)
	case "started":
		m.Started(name)
	case "ready":
		m.Ready(name, true)
	case "unhealthy":
		m.Unhealthy(name, nil)
	case "refused":
		m.Failed(name, "ErrImagePull", "no such image", at, 2*time.Second)
	case "stop":
		_, _ = fmt.Sscan(name, &n)
		m.Stop("", time.Duration(n)*time.Second, at)
	case "prepared":
		m.Prepared("192.168.244.11", []string{"10.244.1.2"})
	default:
		panic(event)
	}
}

// A history is steps of "second event => what the machine does then | phase".
var histories = []struct {
	name   string
	policy corev1.RestartPolicy
	pod    string
	edit   func(*corev1.Pod)
	steps  string
}{
	{name: "containers wait for network and volumes", pod: "a", steps: `
		0 => |Pending
		0 prepared => +a|Pending
		1 run a => |Running`},
	{name: "init containers one after the other, then applications", pod: "i:1 i:2 a b", steps: `
		0 prepared => +i:1|Pending
		1 run i:1 => |Pending
		2 exit i:1 0 => +i:2|Pending
		3 run i:2 => |Pending
		4 exit i:2 0 => +a|Pending
		5 run a => +b|Pending
		6 run b => |Running`},
	{name: "the next application waits for the postStart hook of the one before", pod: "a b", steps: `
		0 prepared => +a|Pending
		1 begun a => |Pending
		9 hooked a => +b|Pending`},
	{name: "an init container that fails is run again after its back-off", pod: "i:1 a", steps: `
		0 prepared => +i:1|Pending
		1 run i:1 => |Pending
		2 exit i:1 1 => +i:1|Pending
		3 run i:1 => |Pending
		4 exit i:1 1 => @14s|Pending
		14 => +i:1|Pending`},
	{name: "an init container that fails ends a Pod that is never restarted", policy: corev1.RestartPolicyNever, pod: "i:1 a", steps: `
		0 prepared => +i:1|Pending
		1 run i:1 => |Pending
		2 exit i:1 1 => |Failed`},
	{name: "a sidecar has started before what comes after it", pod: "s:1 i:2 a", edit: func(p *corev1.Pod) { p.Spec.InitContainers[0].StartupProbe = &corev1.Probe{} }, steps: `
		0 prepared => +s:1|Pending
		1 run s:1 => |Pending
		2 started s:1 => +i:2|Pending
		3 run i:2 => |Pending
		4 exit i:2 0 => +a|Pending
		5 run a => |Running
		6 exit s:1 1 => +s:1|Running`},
	{name: "applications of a Job end the Pod, and its sidecars after them", policy: corev1.RestartPolicyNever, pod: "s:1 s:2 a", steps: `
		0 prepared => +s:1|Pending
		1 run s:1 => +s:2|Pending
		2 run s:2 => +a|Pending
		3 run a => |Running
		4 exit a 0 => -s:2 30s|Running
		5 exit s:2 143 => -s:1 29s|Running
		6 exit s:1 0 => |Succeeded`},
	{name: "an application that fails on its own, never restarted", policy: corev1.RestartPolicyNever, pod: "a b", steps: `
		0 prepared => +a|Pending
		1 run a => +b|Pending
		1 run b => |Running
		2 exit a 3 => |Running
		3 exit b 0 => |Failed`},
	{name: "restarted on failure alone", policy: corev1.RestartPolicyOnFailure, pod: "a", steps: `
		0 prepared => +a|Pending
		1 run a => |Running
		2 exit a 3 => +a|Running
		3 run a => |Running
		4 exit a 0 => |Succeeded`},
	{name: "back-off doubles, and begins again after ten minutes of work", pod: "a", steps: `
		0 prepared => +a|Pending
		0 run a => |Running
		0 exit a 1 => +a|Running
		0 run a => |Running
		0 exit a 1 => @10s|Running
		10 => +a|Running
		10 run a => |Running
		10 exit a 1 => @30s|Running
		30 => +a|Running
		30 run a => |Running
		630 exit a 1 => +a|Running`},
	{name: "an unhealthy container is stopped and started again", pod: "a", steps: `
		0 prepared => +a|Pending
		1 run a => |Running
		2 unhealthy a => |Running
		3 exit a 143 => +a|Running`},
	{name: "a deletion stops applications at once, sidecars after them, within one grace period", pod: "s:1 a b", steps: `
		0 prepared => +s:1|Pending
		1 run s:1 => +a|Pending
		2 run a => +b|Pending
		3 run b => |Running
		10 stop 30 => -a 30s -b 30s|Running
		15 exit a 0 => |Running
		20 exit b 0 => -s:1 20s|Running
		21 exit s:1 0 => |Succeeded`},
	{name: "a shorter grace replaces a longer one, not the other way round", pod: "s:1 a", steps: `
		0 prepared => +s:1|Pending
		1 run s:1 => +a|Pending
		2 run a => |Running
		10 stop 30 => -a 30s|Running
		10 stop 5 => |Running
		11 stop 60 => |Running
		12 exit a 0 => -s:1 3s|Running`},
	{name: "deleted while a container is being started", pod: "a", steps: `
		0 prepared => +a|Pending
		1 stop 30 => |Pending
		2 run a => -a 29s|Running
		3 exit a 143 => |Failed`},
	{name: "an image that is not there is tried again", pod: "a", steps: `
		0 prepared => +a|Pending
		1 refused a => @3s|Pending
		3 => +a|Pending`},
	{name: "deleted before anything ran", pod: "i:1 a", steps: `
		0 stop 30 => |Failed`},
}

func TestHistories(t *testing.T) {
	for _, test := range histories {
		t.Run(test.name, func(t *testing.T) {
			if test.policy == "" {
				test.policy = corev1.RestartPolicyAlways
			}
			pod := podOf(test.policy, strings.Fields(test.pod)...)
			if test.edit != nil {
				test.edit(pod)
			}
			m := New(pod)
			for step := range strings.Lines(strings.TrimSpace(test.steps)) {
				before, want, _ := strings.Cut(strings.TrimSpace(step), "=>")
				var second int
				_, _ = fmt.Sscan(before, &second)
				if _, event, ok := strings.Cut(strings.TrimSpace(before), " "); ok {
					do(m, second, event)
				}
				actions := next(m, second)
				if got := actions + "|" + string(m.Status(t0).Phase); got != strings.TrimSpace(want) {
					t.Fatalf("after %q: %q, want %q", strings.TrimSpace(before), got, strings.TrimSpace(want))
				}
			}
		})
	}
}

func condition(m *Machine, kind corev1.PodConditionType) string {
	for _, c := range m.Status(t0).Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return "absent"
}

// Ready follows the readiness probes of all continuing containers, and the gates that others write.
func TestConditions(t *testing.T) {
	pod := podOf(corev1.RestartPolicyAlways, "i:1", "a")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	m := New(pod)
	expect := func(when, initialized, ready, containers string) {
		t.Helper()
		next(m, 0)
		for kind, want := range map[corev1.PodConditionType]string{corev1.PodInitialized: initialized, corev1.PodReady: ready, corev1.ContainersReady: containers} {
			if got := condition(m, kind); got != want {
				t.Errorf("%s: %s is %q, want %q", when, kind, got, want)
			}
		}
	}
	do(m, 0, "prepared")
	expect("at first", "False ContainersNotInitialized", "False ContainersNotReady", "False ContainersNotReady")
	do(m, 0, "run i:1")
	do(m, 0, "exit i:1 0")
	expect("initialized", "True ", "False ContainersNotReady", "False ContainersNotReady")
	do(m, 0, "run a")
	expect("running, not probed", "True ", "False ContainersNotReady", "False ContainersNotReady")
	do(m, 0, "ready a")
	expect("without the gate", "True ", "False ReadinessGatesNotReady", "True ")
	pod = pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
	m.Update(pod)
	expect("with the gate", "True ", "True ", "True ")
	do(m, 0, "exit a 1")
	expect("crashed", "True ", "False ContainersNotReady", "False ContainersNotReady")
}

// Statuses of containers have the fields that kubectl shows: why they wait, the number of restarts, and the end of the
// last run.
func TestContainerStatus(t *testing.T) {
	m := New(podOf(corev1.RestartPolicyAlways, "a"))
	status := func() corev1.ContainerStatus { next(m, 0); return m.Status(t0).ContainerStatuses[0] }
	if s := status(); s.State.Waiting == nil || s.State.Waiting.Reason != "ContainerCreating" {
		t.Errorf("at first: %+v", s.State)
	}
	do(m, 0, "prepared")
	status()
	do(m, 0, "refused a")
	if s := status(); s.State.Waiting == nil || s.State.Waiting.Reason != "ErrImagePull" {
		t.Errorf("without its image: %+v", s.State)
	}
	for range 2 {
		do(m, 0, "run a")
		if s := status(); s.State.Running == nil || !s.Ready || !*s.Started {
			t.Errorf("running: %+v", s)
		}
		do(m, 0, "exit a 2")
	}
	if s := status(); s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.RestartCount != 1 || s.LastTerminationState.Terminated.ExitCode != 2 || s.Ready {
		t.Errorf("crashed twice: %+v", s)
	}
}

func TestActiveDeadline(t *testing.T) {
	pod := podOf(corev1.RestartPolicyNever, "a")
	seconds := int64(10)
	pod.Spec.ActiveDeadlineSeconds = &seconds
	start := pod.CreationTimestamp
	start.Time = t0
	pod.Status.StartTime = &start
	m := New(pod)
	do(m, 0, "prepared")
	if got := next(m, 0); got != "+a @10s" {
		t.Errorf("at first %q", got)
	}
	do(m, 1, "run a")
	if got := next(m, 10); got != "-a 30s" {
		t.Errorf("at the deadline %q", got)
	}
	do(m, 11, "exit a 0")
	next(m, 11)
	if s := m.Status(t0); s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" {
		t.Errorf("%s %s", s.Phase, s.Reason)
	}
}
