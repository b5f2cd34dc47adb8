package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Next returns the actions that are due at a time, and the time of the next call without an event (zero: none is
// needed).
func (m *Machine) Next(now time.Time) (actions []Action, wake time.Time) {
	if limit := m.pod.Spec.ActiveDeadlineSeconds; limit != nil && m.pod.Status.StartTime != nil && !m.stop {
		if until := m.pod.Status.StartTime.Add(time.Duration(*limit) * time.Second); now.Before(until) {
			wake = until
		} else {
			m.Stop("DeadlineExceeded", m.grace(), now)
		}
	}
	if !m.stop && (m.failed || m.done()) {
		m.Stop("", m.grace(), now)
	}
	if m.stop {
		return m.stopNext(now), time.Time{}
	}
	if !m.prepared {
		return nil, wake
	}
	actions, next := m.startNext(now)
	if wake.IsZero() || !next.IsZero() && next.Before(wake) {
		wake = next
	}
	return actions, wake
}

// done reports whether all applications have ended without a restart.
func (m *Machine) done() bool {
	for _, c := range m.containers {
		if c.kind == App && c.phase != ended {
			return false
		}
	}
	return true
}

// startNext starts containers whose turn it is: init containers one after the other; sidecars that have ended;
// applications in their order, each after the postStart hook of the previous one.
func (m *Machine) startNext(now time.Time) (actions []Action, wake time.Time) {
	start := func(c *container) bool {
		if c.phase != waiting {
			return false
		}
		if now.Before(c.notBefore) {
			if wake.IsZero() || c.notBefore.Before(wake) {
				wake = c.notBefore
			}
			return false
		}
		c.phase = starting
		actions = append(actions, Action{Container: c.spec.Name, Start: true})
		return true
	}
	initialized := m.initialized()
	for _, c := range m.containers {
		if c.kind == App && !initialized {
			break
		}
		start(c)
		if c.kind == Init && c.phase != ended || c.kind == Sidecar && !initialized && !c.started || c.kind == App && c.phase == starting {
			break
		}
	}
	return actions, wake
}

// initialized reports whether applications may start: each init container has succeeded, and each sidecar has started.
func (m *Machine) initialized() bool {
	for _, c := range m.containers {
		if c.kind == App && c.runs > 0 {
			return true
		}
	}
	for _, c := range m.containers {
		if c.kind == Init && (c.phase != ended || c.exit == nil || c.exit.ExitCode != 0) || c.kind == Sidecar && !c.started {
			return false
		}
	}
	return true
}

// stopNext stops applications and init containers at once, then sidecars in reverse order.
func (m *Machine) stopNext(now time.Time) (actions []Action) {
	grace := max(m.deadline.Sub(now), 0)
	left := false
	stop := func(c *container) {
		switch {
		case c.process && c.phase != stopping:
			c.phase = stopping
			actions = append(actions, Action{Container: c.spec.Name, Grace: grace})
		case !c.process && c.phase == waiting:
			c.phase = ended
		}
		left = left || c.phase != ended
	}
	for _, c := range m.containers {
		if c.kind != Sidecar {
			stop(c)
		}
	}
	for i := len(m.containers) - 1; i >= 0 && !left; i-- {
		if m.containers[i].kind == Sidecar {
			stop(m.containers[i])
		}
	}
	return actions
}

// Finished reports whether no container runs or will run.
func (m *Machine) Finished() bool {
	if !m.stop {
		return false
	}
	for _, c := range m.containers {
		if c.phase != ended {
			return false
		}
	}
	return true
}

// Deadline returns the time by which all containers must have ended; stopping reports whether Stop was called.
func (m *Machine) Deadline() (at time.Time, stopping bool) { return m.deadline, m.stop }

// phase returns the Pod's phase by the rules of the kubelet's getPhase.
func (m *Machine) phase() corev1.PodPhase {
	if m.Finished() || m.done() {
		if m.ending != "" || m.failed {
			return corev1.PodFailed
		}
		for _, c := range m.containers {
			if c.kind == App && (c.exit == nil || c.exit.ExitCode != 0) {
				return corev1.PodFailed
			}
		}
		if m.done() && m.Finished() {
			return corev1.PodSucceeded
		}
		return corev1.PodRunning // sidecars end
	}
	if !m.initialized() {
		return corev1.PodPending
	}
	for _, c := range m.containers {
		if c.kind == App && c.runs == 0 {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}
