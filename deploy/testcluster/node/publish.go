package node

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// publish writes the newest status. It deletes the Pod's object once the object is marked for deletion and nothing
// runs.
func (p *pod) publish(ctx context.Context) {
	written := *p.object.Load().Status.DeepCopy()
	for {
		status, err := p.statuses.Get(ctx)
		if err != nil {
			return
		}
		for {
			one, cancel := context.WithTimeout(ctx, patience)
			err := p.write(one, written, status)
			cancel()
			// deleted, or another Pod of the same name
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
				break
			}
			p.node.Log.Warn("status of a Pod was not written", "pod", p.namespace+"/"+p.name, "err", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			if next, ok := p.statuses.Take(); ok {
				status = next
			}
		}
		written = status
	}
}

func (p *pod) write(ctx context.Context, old, status corev1.PodStatus) error {
	object, pods := p.object.Load(), p.node.Client.CoreV1().Pods(p.namespace)
	patch, err := statusPatch(object.UID, old, status)
	if err != nil {
		return err
	}
	if patch != nil {
		if _, err := pods.Patch(ctx, p.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	if object.DeletionTimestamp == nil || !terminal(status.Phase) {
		return nil
	}
	return pods.Delete(ctx, p.name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &object.UID}})
}

// statusPatch returns the difference, for the Pod with that UID only; nil: no difference. Conditions of others are
// unchanged.
func statusPatch(uid types.UID, old, status corev1.PodStatus) ([]byte, error) {
	var ours []corev1.PodCondition
	for _, c := range old.Conditions {
		for _, o := range status.Conditions {
			if c.Type == o.Type {
				ours = append(ours, c)
			}
		}
	}
	old.Conditions = ours
	a, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: old})
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(a, b, corev1.Pod{})
	if err != nil || string(patch) == "{}" {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(patch, &all); err != nil {
		return nil, err
	}
	all["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(all)
}
