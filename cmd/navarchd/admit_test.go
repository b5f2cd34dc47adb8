package main

import "testing"

// The webhooks' port, which requires no credential, has 1,024 connections, half of them for one source
// (deploy/docs/security-admission.md), and reads no more of a review than its maximum, plus HTTP's overhead.
// Promise: security-admission.md#turns-and-connections
func TestWebhookLimits(t *testing.T) {
	if l := webhookLimits; l.Connections != 1024 || l.PerSource != 512 || l.Body != 9<<20 {
		t.Errorf("%+v", l)
	}
}
