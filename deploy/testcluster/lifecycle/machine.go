// Package lifecycle decides the actions of a node for one Pod: which container it starts or stops next, and the status
// of the Pod. It implements the kubelet's rules as a state machine without clocks, processes or clients: its inputs are
// events, its outputs actions and the status.
//
// Owns: the state of one Pod's containers. Reads: the Pod's specification. Never: accesses anything outside of its
// arguments.
package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is the kind of a container.
type Kind int

const (
	Init Kind = iota // runs to its end before the next one starts
	// Sidecar is an init container with restartPolicy Always: the next container starts once it has started, and it ends
	// after the applications.
	Sidecar
	App // an application container
)

// phase is the position of a container between starts and ends.
type phase int

const (
	waiting  phase = iota // for its turn, or for the end of its back-off
	starting              // its start was requested, or its postStart hook runs
	running
	stopping
	ended // without a restart
)

// Action is an action for one container. With Start, the caller starts it, runs its postStart hook, and then reports
// Begun and Hooked, or Failed. Otherwise the caller stops it within Grace (preStop hook, signal, SIGKILL), and reports
// Exited.
type Action struct {
	Container string
	Start     bool
	Grace     time.Duration
}

// Back-off between restarts, and the running time after which it starts again at firstDelay, as in the kubelet.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
	forgetting = 10 * time.Minute
)

type container struct {
	spec           *corev1.Container
	kind           Kind
	phase          phase
	process        bool // its process runs: Begun, and not Exited
	hooked         bool // its postStart hook has ended
	started, ready bool
	begun          time.Time
	id             string
	last           *corev1.ContainerStateTerminated // the end of the previous run
	exit           *corev1.ContainerStateTerminated // the end of this run
	runs           int32
	reason, note   string // why it waits
	delay          time.Duration
	notBefore      time.Time
}

// Machine is the state of one Pod.
type Machine struct {
	pod        *corev1.Pod
	containers []*container // init containers in order, then applications
	prepared   bool
	reason     string // why the Pod cannot be prepared
	addresses  []string
	hostIP     string
	stop       bool // all containers must end
	deadline   time.Time
	ending     string // the reason, unless it is a deletion or the containers' own end
	failed     bool   // an init container failed and is not restarted
}

// New returns the machine of a Pod whose containers wait for Prepared.
func New(pod *corev1.Pod) *Machine {
	m := &Machine{pod: pod}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		kind := Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		m.containers = append(m.containers, &container{spec: c, kind: kind})
	}
	for i := range pod.Spec.Containers {
		m.containers = append(m.containers, &container{spec: &pod.Spec.Containers[i], kind: App})
	}
	return m
}

// Update sets a newer version of the Pod; readiness gates and labels may differ, its containers may not.
func (m *Machine) Update(pod *corev1.Pod) { m.pod = pod }

// Prepared records that network and volumes exist. hostIP is the node's address.
func (m *Machine) Prepared(hostIP string, addresses []string) {
	m.prepared, m.hostIP, m.addresses = true, hostIP, addresses
}

// Unprepared records why network or volumes do not exist yet.
func (m *Machine) Unprepared(reason string) { m.reason = reason }

func (m *Machine) find(name string) *container {
	for _, c := range m.containers {
		if c.spec.Name == name {
			return c
		}
	}
	return nil
}

// Begun records that a container's process runs.
func (m *Machine) Begun(name, id string, at time.Time) {
	c := m.find(name)
	if c.runs > 0 && c.exit != nil {
		c.last = c.exit
	}
	c.runs++
	c.process, c.exit, c.begun, c.id, c.reason, c.note = true, nil, at, id, "", ""
}

// Hooked records that a container's postStart hook has ended, or that it has no hook.
func (m *Machine) Hooked(name string) {
	c := m.find(name)
	if !c.process {
		return
	}
	c.hooked = true
	if c.phase == starting {
		c.phase = running
	}
	c.started = c.spec.StartupProbe == nil
	c.ready = c.started && c.spec.ReadinessProbe == nil
}

// Failed records that a container could not be started; reason is one of the kubelet's (ErrImagePull,
// CreateContainerConfigError ...). The start is repeated after retry.
func (m *Machine) Failed(name, reason, note string, at time.Time, retry time.Duration) {
	c := m.find(name)
	c.phase, c.reason, c.note, c.notBefore = waiting, reason, note, at.Add(retry)
}

// Started records that the startup probe of a container succeeded.
func (m *Machine) Started(name string) {
	c := m.find(name)
	c.started = c.process
	c.ready = c.process && c.spec.ReadinessProbe == nil
}

// Ready records the result of a container's readiness probe.
func (m *Machine) Ready(name string, ready bool) {
	c := m.find(name)
	c.ready = ready && c.process && c.started
}

// Unhealthy records that a startup or liveness probe, or the postStart hook, failed. It returns the actions that stop
// the container; the restart policy decides about a restart.
func (m *Machine) Unhealthy(name string, probe *corev1.Probe) []Action {
	c := m.find(name)
	if !c.process || c.phase == stopping {
		return nil
	}
	grace := m.grace()
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
	}
	c.phase = stopping
	return []Action{{Container: name, Grace: grace}}
}

// Exited records that a container's process has ended.
func (m *Machine) Exited(name string, code, signal int, message string, at time.Time) {
	c := m.find(name)
	c.process, c.hooked, c.started, c.ready = false, false, false, false
	c.exit = &corev1.ContainerStateTerminated{ExitCode: int32(code), Signal: int32(signal),
		Message: message, StartedAt: metav1.NewTime(c.begun),
		FinishedAt: metav1.NewTime(at), ContainerID: c.id, Reason: "Error"}
	if code == 0 {
		c.exit.Reason = "Completed"
	}
	if m.stop || !m.again(c) {
		c.phase = ended
		m.failed = m.failed || c.kind == Init && code != 0 && !m.stop
		return
	}
	if at.Sub(c.begun) >= forgetting {
		c.delay = 0
	}
	c.phase, c.notBefore = waiting, at.Add(c.delay)
	if c.delay > 0 {
		c.reason, c.note = "CrashLoopBackOff", "back-off "+c.delay.String()+" restarting failed container="+name
	}
	c.delay = min(max(2*c.delay, firstDelay), maxDelay)
}

// again reports whether an ended container is restarted.
func (m *Machine) again(c *container) bool {
	if c.kind == Sidecar {
		return true
	}
	switch m.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return c.exit.ExitCode != 0
	default:
		return c.kind == App || c.exit.ExitCode != 0
	}
}

// Stop ends the Pod within grace; a shorter grace replaces a longer one. reason is empty for a deletion.
func (m *Machine) Stop(reason string, grace time.Duration, at time.Time) {
	if deadline := at.Add(grace); !m.stop || deadline.Before(m.deadline) {
		m.deadline = deadline
	}
	if !m.stop {
		m.ending = reason
	}
	m.stop = true
}

func (m *Machine) grace() time.Duration {
	if g := m.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return 30 * time.Second
}
