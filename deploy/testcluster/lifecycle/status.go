package lifecycle

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status returns the Pod's status, without conditions that others write (PodScheduled, readiness gates). An unchanged
// condition keeps its transition time.
func (m *Machine) Status(now time.Time) corev1.PodStatus {
	s := corev1.PodStatus{Phase: m.phase(), Reason: m.ending,
		HostIP: m.hostIP, StartTime: m.pod.Status.StartTime, QOSClass: m.pod.Status.QOSClass,
		ObservedGeneration: m.pod.Generation}
	if m.hostIP != "" {
		s.HostIPs = []corev1.HostIP{{IP: m.hostIP}}
	}
	if s.StartTime == nil {
		t := metav1.NewTime(now)
		s.StartTime = &t
	}
	for i, a := range m.addresses {
		if i == 0 {
			s.PodIP = a
		}
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a})
	}
	for _, c := range m.containers {
		if one := m.containerStatus(c); c.kind == App {
			s.ContainerStatuses = append(s.ContainerStatuses, one)
		} else {
			s.InitContainerStatuses = append(s.InitContainerStatuses, one)
		}
	}
	s.Conditions = m.conditions(now)
	return s
}

func (m *Machine) containerStatus(c *container) corev1.ContainerStatus {
	started := c.started
	s := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, ImageID: "local://" + c.spec.Image, ContainerID: c.id, Started: &started,
		RestartCount: max(c.runs-1, 0), Ready: c.ready}
	switch {
	case c.process:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.begun)}
		s.LastTerminationState.Terminated = c.last
	case c.exit != nil && (c.phase == ended || c.reason == ""):
		s.State.Terminated = c.exit
		s.LastTerminationState.Terminated = c.last
		s.Ready = c.kind == Init && c.exit.ExitCode == 0
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.reason, Message: c.note}
		s.LastTerminationState.Terminated = c.exit
		if c.reason == "" {
			s.State.Waiting.Reason, s.State.Waiting.Message = "PodInitializing", m.reason
			if !m.prepared || c.phase == starting {
				s.State.Waiting.Reason = "ContainerCreating"
			}
		}
	}
	return s
}

func (m *Machine) conditions(now time.Time) []corev1.PodCondition {
	var unready, uninitialized []string
	for _, c := range m.containers {
		if c.kind != Init && !c.ready {
			unready = append(unready, c.spec.Name)
		}
		if c.kind == Init && (c.exit == nil || c.exit.ExitCode != 0) || c.kind == Sidecar && !c.started {
			uninitialized = append(uninitialized, c.spec.Name)
		}
	}
	phase := m.phase()
	containers := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
	switch {
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed || m.done():
		containers.Status, containers.Reason = corev1.ConditionFalse, "PodCompleted"
	case len(unready) > 0:
		containers.Status, containers.Reason = corev1.ConditionFalse, "ContainersNotReady"
		containers.Message = "containers with unready status: [" + strings.Join(unready, " ") + "]"
	}
	ready := containers
	ready.Type = corev1.PodReady
	for _, gate := range m.pod.Spec.ReadinessGates {
		if ready.Status == corev1.ConditionTrue && !isTrue(m.pod.Status.Conditions, gate.ConditionType) {
			ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", "the status of pod readiness "+
				"gate "+string(gate.ConditionType)+" is not True"
		}
	}
	initialized := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if !m.initialized() {
		initialized.Status, initialized.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
		initialized.Message = "containers with incomplete status: [" + strings.Join(uninitialized, " ") + "]"
	}
	sandbox := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	if m.prepared {
		sandbox.Status = corev1.ConditionTrue
	}
	all := []corev1.PodCondition{sandbox, initialized, ready, containers}
	for i := range all {
		all[i].ObservedGeneration = m.pod.Generation
		all[i].LastTransitionTime = metav1.NewTime(now)
		for _, old := range m.pod.Status.Conditions {
			if old.Type == all[i].Type && old.Status == all[i].Status {
				all[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return all
}

func isTrue(all []corev1.PodCondition, t corev1.PodConditionType) bool {
	for _, c := range all {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
