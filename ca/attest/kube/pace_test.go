package kube

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// Somebody who asks without end waits for their own turn, and not in the way of others.
func TestPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(rate.NewLimiter(10, 10), 1, 2, 100)
		begun := time.Now()
		for range 12 { // two at once, then one a second
			if err := p.wait(t.Context(), "loud"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("12 questions of one took %v", took)
		}
		begun = time.Now()
		for _, who := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			if err := p.wait(t.Context(), who); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 1500*time.Millisecond || took > 2*time.Second { // 26, ten at once and ten a second
			t.Errorf("26 questions of others took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range 3 {
			_ = p.wait(ctx, "late")
		}
		if p.wait(ctx, "late") == nil {
			t.Error("a question that comes too late has its turn")
		}
	})
}
