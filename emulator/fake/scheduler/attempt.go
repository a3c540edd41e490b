package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// attempt sends one POST and reports its result. After Stop it does neither: a job can be due at the same moment.
func (s *Scheduler) attempt(ctx context.Context, j Job, due time.Time) error {
	if ctx.Err() != nil {
		return fmt.Errorf("job %s: %w", j.Name, ErrStopped)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(j.Deadline, defaultDeadline))
	defer cancel()
	err := s.post(ctx, j, due)
	if err != nil {
		err = fmt.Errorf("job %s: %w", j.Name, err)
	}
	if s.options.Attempted != nil {
		s.options.Attempted(j.Name, err)
	}
	return err
}

func (s *Scheduler) post(ctx context.Context, j Job, due time.Time) error {
	token, err := s.options.Token(ctx, j.Account, j.Audience)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.URL, bytes.NewReader(j.Body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", "Google-Cloud-Scheduler")
	req.Header.Set("X-CloudScheduler", "true")
	req.Header.Set("X-CloudScheduler-JobName", j.Name)
	req.Header.Set("X-CloudScheduler-ScheduleTime", due.UTC().Format(time.RFC3339))
	if len(j.Body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // lets the connection be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}
