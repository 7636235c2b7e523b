CREATE TABLE IF NOT EXISTS "public"."floodmark_ledger" (ledger text PRIMARY KEY, number bigint NOT NULL, digest text, rows bigint, marks jsonb, modified_time timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE "public"."floodmark_ledger" IS 'Floodmark ledger, format 1';
INSERT INTO floodmark_ledger VALUES ('floodmark.default.orders.mart', 4, 'd1ge5t', 2, '{"orders": 200}', '2026-11-01T12:00:00+00:00');
INSERT INTO floodmark_ledger VALUES ('floodmark.default.clicks.mart', 9, NULL, 0, '{}', '2026-11-01T12:00:00+00:00');
