package check

import (
	"context"
	"fmt"
	"strconv"
)

// sizeAnnotation is the chart's annotation of Pods that serve proxies. Its value is the number of proxies that the
// installed size is for. Pods do not have it if the chart cannot determine the number, for example without a memory
// limit.
const sizeAnnotation = "navarch.io/proxies"

// size compares the number of connected proxies with the number that the installed size is for.
func (k *checker) size(ctx context.Context) {
	check := NameSize.of("proxies")
	servers := k.processes("xds")
	connected, most, sized := 0, 0, false
	for _, r := range servers {
		var page struct{ Streams int }
		if err := r.debug(ctx, "/debug/fleet", &page); err != nil {
			k.add(check, Unknown, r.Name+": "+err.Error(), "its pages are off with ENABLE_DEBUG_ON_HTTP=false")
			return
		}
		connected += page.Streams
		if n, err := strconv.Atoi(r.annotations[sizeAnnotation]); err == nil {
			most, sized = max(most, n), true
		}
	}
	switch check = check.count(connected); {
	case !sized:
		k.add(check, OK, fmt.Sprintf("%d are connected", connected), "")
	case connected > most:
		k.add(check, Warning, fmt.Sprintf("%d are connected, and the installed size is for %d", connected, most),
			"give the replicas more memory, or install a larger size: deploy/docs/installation.md, Roles and size")
	default:
		k.add(check, OK, fmt.Sprintf("%d are connected, of %d that the installed size is for", connected, most), "")
	}
}
