package check

import (
	"context"
	"fmt"
	"strconv"
)

// sizeAnnotation is the chart's, of Pods that serve proxies: how many proxies the installed size is for. Pods of Deployments that the values describe
// themselves have no such annotation.
const sizeAnnotation = "navarch.io/proxies"

// size compares the number of connected proxies with what the installed size is for.
func (k *checker) size(ctx context.Context) {
	const check = "proxies"
	servers := k.processes("xds")
	connected, most := 0, 0
	for _, r := range servers {
		var page struct{ Streams int }
		if err := r.debug(ctx, "/debug/fleet", &page); err != nil {
			k.say(check, Unknown, r.Name+": "+err.Error(), "its pages are off with ENABLE_DEBUG_ON_HTTP=false")
			return
		}
		connected += page.Streams
		if n, err := strconv.Atoi(r.annotations[sizeAnnotation]); err == nil {
			most = max(most, n)
		}
	}
	switch {
	case most == 0:
		k.say(check, OK, fmt.Sprintf("%d are connected", connected), "")
	case connected > most:
		k.say(check, Warning, fmt.Sprintf("%d are connected, and the installed size is for %d", connected, most),
			"upgrade with a larger size, or with Deployments of your own: deploy/docs/installation.md, Roles and size")
	default:
		k.say(check, OK, fmt.Sprintf("%d are connected, of %d that the installed size is for", connected, most), "")
	}
}
