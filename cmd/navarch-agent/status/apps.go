package status

import (
	"context"
	"errors"
	"io"
	"time"
)

// maxAppPage bounds each metrics page, in bytes, if the application has several pages (targets). Stock agents have this
// limit too.
const maxAppPage = 10 << 20

// startApps requests the metrics pages of all targets at once. Each returned channel yields one page. With several
// targets, startApps requests plain text only, because two pages of OpenMetrics cannot be concatenated.
func (s *Server) startApps(start func(url, formats string) chan page, formats string) (all []chan page) {
	if len(s.cfg.Apps) > 1 {
		formats = plainText
	}
	for _, target := range s.cfg.Apps {
		all = append(all, start(target.URL(), formats))
	}
	return all
}

// awaitApps waits until all targets have begun to answer or failed. kind is the content type of the merged pages. If
// all successful answers are OpenMetrics, kind is the OpenMetrics type of one of them. It is empty if an answer is
// plain text, or if all targets failed. If an answer is plain text, each OpenMetrics page gets an error.
func awaitApps(apps []chan page) (all []page, kind string) {
	open, plain := "", false
	for _, ch := range apps {
		p := <-ch
		all = append(all, p)
		if p.err == nil && p.open {
			open = p.kind
		} else if p.err == nil {
			plain = true
		}
	}
	if !plain {
		return all, open
	}
	for i := range all {
		if all[i].open && all[i].err == nil {
			all[i].err = errors.New("a page of OpenMetrics cannot follow one of plain text")
		}
	}
	return all, ""
}

// copyApps writes the pages to w in the order of their targets. Each page has an equal share of the remaining time. A
// hanging target therefore leaves time for the others. copyApps returns false if the scraper has disconnected.
func (s *Server) copyApps(ctx context.Context, w io.Writer, pages []page) bool {
	limit := int64(maxPage)
	if len(pages) > 1 {
		limit = maxAppPage
	}
	for i, p := range pages {
		if end, bounded := ctx.Deadline(); bounded && p.cancel != nil {
			late := time.AfterFunc(time.Until(end)/time.Duration(len(pages)-i), p.cancel)
			defer late.Stop()
		}
		if !s.countFailure("application", p.copyTo(w, limit)) {
			return false
		}
	}
	return true
}
