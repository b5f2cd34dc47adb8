package status

import (
	"context"
	"errors"
	"io"
	"time"
)

// maxAppPage bounds the page of each of several targets, in bytes, as stock agents do.
const maxAppPage = 10 << 20

// startApps asks all of the application's targets at once. Of several, pages of plain text are wanted, which can follow one another whoever wrote them.
func (s *Server) startApps(start func(url, formats string) chan page, formats string) (all []chan page) {
	if len(s.cfg.Apps) > 1 {
		formats = plainText
	}
	for _, target := range s.cfg.Apps {
		all = append(all, start(target.URL(), formats))
	}
	return all
}

// together waits for the beginnings of the application's pages. kind is the type of the page that they make: that of OpenMetrics where all that answered
// are of it; empty: plain text, and pages of OpenMetrics among others fail.
func together(apps []chan page) (all []page, kind string) {
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

// copyApps hands the application's pages on in the order of their targets. Each may take its share of the time that is left, so that one which hangs
// leaves time for the others. False: the scraper is gone.
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
		if !s.note("application", p.copyTo(w, limit)) {
			return false
		}
	}
	return true
}
