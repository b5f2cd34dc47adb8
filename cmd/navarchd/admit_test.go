package main

import "testing"

// The webhooks' port, which asks for no credential, has 1,024 connections, of which one source has half (deploy/docs/security.md), and reads no more
// of a review than a review may have, and what HTTP adds.
func TestWebhookLimits(t *testing.T) {
	if l := webhookLimits; l.Connections != 1024 || l.PerSource != 512 || l.Body != 9<<20 {
		t.Errorf("%+v", l)
	}
}
