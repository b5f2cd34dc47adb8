package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// keep is the keeper's part of one term: it shows what is held of removals, and lets them go when an operator accepts that. It returns when ctx ends.
func (i *ingester) keep(ctx context.Context, epoch kv.Epoch) {
	for ctx.Err() == nil {
		err := i.keeper.Lead(ctx, epoch)
		if ctx.Err() != nil || errors.Is(err, kv.ErrDeposed) {
			return
		}
		i.log.Warn("held removals are not shown, trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
}

// takeOver is the keeper's part while another process leads.
func (i *ingester) takeOver() loop.Task {
	return loop.Task{Name: "accepted removals", Run: func(ctx context.Context) error {
		return i.keeper.Watch(ctx, func() bool { _, leads := i.lead.Epoch(); return leads })
	}}
}

// heldProblem says on /debug/problems how a removal that is held is accepted.
func (i *ingester) heldProblem() (inspect.Problem, bool) {
	held := i.keeper.Shown()
	if held == nil {
		return inspect.Problem{}, false
	}
	message := fmt.Sprintf("%d objects vanished at once, or lost most of their endpoints, and are held since %s: navarchctl store held lists them, navarchctl store accept-removal %s lets them go",
		held.Count, held.Since.Format(time.RFC3339), held.Digest)
	if i.keeper.After > 0 {
		message += fmt.Sprintf("; unless everything vanished they go at %s", held.Since.Add(i.keeper.After).Format(time.RFC3339))
	}
	return inspect.Problem{Object: "removals/held", Location: "etcd", Code: problem.Held, Severity: problem.Warning, Message: message}, true
}
