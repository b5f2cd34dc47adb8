package scene

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Rows of reports.
const (
	rowReport     = "a whole report of all replicas"
	rowReportSize = "its size"
	rowReportCPU  = "server CPU of a whole report"
	rowKept       = "a snapshot of all replicas, without logs and metrics"
	rowKeptSize   = "size of the snapshot"
)

// bugReport asks one replica for a report of all of them, as navarchctl bug-report does, while nothing else happens.
func bugReport(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	s.enter("making a report")
	before := spent(s.watched())
	took, size, err := s.servers[0].report(s.ctx, "bug-report", len(s.servers))
	if err != nil {
		return err
	}
	s.row(rowReport, "s", took.Seconds())
	s.row(rowReportSize, "MB", mb(size))
	s.cost(rowReportCPU, "ms", ms(spent(s.watched())-before))
	took, size, err = s.servers[0].report(s.ctx, "snapshot", len(s.servers))
	if err != nil {
		return err
	}
	s.row(rowKept, "s", took.Seconds())
	s.row(rowKeptSize, "MB", mb(size))
	return nil
}

// report reads a report, and returns the time that it took and its bytes. It is an error if the report lacks one of so
// many replicas.
func (s *Server) report(ctx context.Context, contents string, replicas int) (took time.Duration, size uint64, err error) {
	began := time.Now()
	raw, err := s.ask(ctx, http.MethodGet, apiRoot+"report?contents="+contents, nil)
	took = time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	if n, err := processesIn(raw); err != nil || n < replicas {
		return 0, 0, fmt.Errorf("/api/v1/report has %d of %d replicas: %w", n, replicas, err)
	}
	return took, uint64(len(raw)), nil
}

// processesIn counts the processes in a report.
func processesIn(raw []byte) (n int, err error) {
	gz, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return 0, err
	}
	for entries := tar.NewReader(gz); ; {
		header, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		case strings.HasSuffix(header.Name, "/process.json"):
			n++
		}
	}
}
