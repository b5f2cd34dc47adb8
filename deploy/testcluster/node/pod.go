package node

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/testcluster/lifecycle"
	"navarch.io/navarch/deploy/testcluster/volume"
	"navarch.io/navarch/store/loop"
)

// version is a Pod as the API server has it, or as it was at its deletion.
type version struct {
	object *corev1.Pod
	gone   bool
}

// pod is one Pod of the node. Only its loop uses the machine. Slow work runs on other goroutines, which send their
// results to the loop.
type pod struct {
	node            *Node
	namespace, name string
	dir             string
	versions        *loop.Box[version]
	events          *loop.Box[[]func()] // functions for the loop
	refresh         *loop.Box[struct{}] // volumes may have changed
	statuses        *loop.Box[corev1.PodStatus]
	machine         *lifecycle.Machine
	object          atomic.Pointer[corev1.Pod]
	status          atomic.Pointer[corev1.PodStatus]
	network         atomic.Pointer[network]
	volumes         *volume.Set
	work            sync.WaitGroup // all goroutines of the Pod

	mu   sync.Mutex // guards runs
	runs map[string]*runs
}

func newPod(n *Node, object *corev1.Pod) *pod {
	p := &pod{node: n, namespace: object.Namespace, name: object.Name,
		dir: filepath.Join(n.Dir, string(object.UID)), machine: lifecycle.New(object), runs: map[string]*runs{},
		versions: loop.NewBox(func(_, next version) version { return next }), events: loop.NewBox(func(a,
			b []func()) []func() {
			return append(a, b...)
		}),
		refresh: loop.NewBox(func(_, _ struct{}) struct{} { return struct{}{} }), statuses: loop.NewBox(func(_,
			next corev1.PodStatus) corev1.PodStatus {
			return next
		})}
	p.object.Store(object)
	p.status.Store(object.Status.DeepCopy())
	p.volumes = volume.New(filepath.Join(p.dir, "volumes"), volume.Source{Source: n.from, Token: n.token, Claim: n.claim})
	return p
}

func (p *pod) send(event func()) { p.events.Put([]func(){event}) }

// run runs the loop of one Pod. It returns once the Pod's object is deleted and nothing runs, or when the context ends,
// after killing all processes.
func (p *pod) run(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer p.cleanUp()
	defer p.work.Wait()
	defer cancel()
	p.work.Go(func() { p.prepare(ctx) })
	p.work.Go(func() { p.publish(ctx) })
	released := false
	for gone := false; ; {
		now := time.Now()
		actions, wake := p.machine.Next(now)
		p.report(now) // starting containers read their addresses in the status
		for _, a := range actions {
			p.act(ctx, a)
		}
		finished := p.machine.Finished()
		if finished && gone {
			return
		}
		if finished && !released {
			p.release()
			released = true
		}
		if deadline, stopping := p.machine.Deadline(); stopping && !finished {
			if wake = deadline; !now.Before(deadline) {
				p.killAll()
				wake = time.Time{}
			}
		}
		select {
		case <-ctx.Done():
			p.killAll()
			return
		case <-after(wake, now):
		case <-p.events.Ready():
			if events, ok := p.events.Take(); ok {
				for _, event := range events {
					event()
				}
			}
		case <-p.versions.Ready():
			if v, ok := p.versions.Take(); ok {
				gone = p.take(v, now) || gone
			}
		}
	}
}

func after(wake, now time.Time) <-chan time.Time {
	if wake.IsZero() {
		return nil
	}
	return time.After(wake.Sub(now))
}

// take processes a newer version of the Pod.
func (p *pod) take(v version, now time.Time) (gone bool) {
	if old := p.object.Swap(v.object); !reflect.DeepEqual(old.Labels, v.object.Labels) ||
		!reflect.DeepEqual(old.Annotations, v.object.Annotations) {
		p.refresh.Put(struct{}{})
	}
	p.machine.Update(v.object)
	switch {
	case v.gone:
		p.machine.Stop("", 0, now)
	case v.object.DeletionTimestamp != nil:
		p.machine.Stop("", max(v.object.DeletionTimestamp.Sub(now), 0), now) // the end of the grace period
	}
	return v.gone
}

// report passes a changed status to publish.
func (p *pod) report(now time.Time) {
	status := p.machine.Status(now)
	old := p.status.Load()
	// Transition times are new until the written object has been seen again, without any other change.
	for i := range status.Conditions {
		for _, c := range old.Conditions {
			if c.Type == status.Conditions[i].Type && c.Status == status.Conditions[i].Status {
				status.Conditions[i].LastTransitionTime = c.LastTransitionTime
			}
		}
	}
	if old.StartTime != nil {
		status.StartTime = old.StartTime
	}
	finishing := p.machine.Finished() && p.object.Load().DeletionTimestamp != nil
	if reflect.DeepEqual(old, &status) && !finishing {
		return
	}
	p.status.Store(&status)
	p.statuses.Put(status)
}

// killAll kills every process of the Pod.
func (p *pod) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		if r.current != nil {
			r.current.Signal(syscall.SIGKILL)
		}
	}
}

// release releases the network once nothing runs.
func (p *pod) release() {
	if n := p.network.Swap(nil); n != nil {
		n.close()
	}
}

func (p *pod) cleanUp() {
	p.release()
	if err := os.RemoveAll(p.dir); err != nil {
		p.node.Log.Warn("folder of a Pod stays", "pod", p.namespace+"/"+p.name, "err", err)
	}
}
