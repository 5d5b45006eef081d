# Runs a repair that was written by `fairfix export --to json`; it needs the package jsonlite.
#
# `Rscript program.R rule.json` runs the rows that came with it and compares the results with those of fairfix. It gives
# probabilities and values; a decision that is drawn needs BLAKE2b as well, which is in the package sodium.

library(jsonlite)

# P(decision = 1) or the value of each row of a data frame; NA where there is none. `draws` are used where values are drawn.
predict_rows <- function(rule, rows, draws = NULL) {
  out <- list()
  for (i in seq_along(rule$steps)) {
    step <- rule$steps[[i]]
    out[[i]] <- run_step(step, out[unlist(step$of) + 1], rows, draws)
  }
  out[[rule$result + 1]]
}

entries <- function(x) vapply(x, function(one) if (is.null(one)) NA_real_ else as.numeric(one), numeric(1))

run_step <- function(step, of, rows, draws) {
  if (length(of) > 0) a <- of[[1]]
  if (length(of) > 1) b <- of[[2]]
  true <- function(condition) !is.na(condition) & condition # a comparison with a missing number is false
  switch(step$operation,
    number = as.numeric(rows[[step$column]]),
    level = {
      text <- as.character(rows[[step$column]])
      text[is.na(text)] <- "(missing)"
      match(text, unlist(step$levels), nomatch = 0) - 1
    },
    draw = draws,
    constant = rep(if (is.null(step$value)) NA_real_ else step$value, nrow(rows)),
    add = a + b,
    subtract = a - b,
    multiply = a * b,
    divide = a / b,
    minimum = pmin(a, b),
    maximum = pmax(a, b),
    exp = exp(a),
    log = log(a),
    below = true(a < b),
    at_most = true(a <= b),
    equal = true(a == b),
    is_missing = is.na(a),
    choose = ifelse(a, b, of[[3]]),
    dot = Reduce(`+`, Map(`*`, of, unlist(step$weights))),
    search = findInterval(a, unlist(step$grid), left.open = !step$right),
    take = entries(step$numbers)[a + 1],
    trees = walk(step, do.call(cbind, of)),
    stop("unknown operation ", step$operation)
  )
}

walk <- function(step, X) {
  left <- unlist(step$left)
  right <- unlist(step$right)
  feature <- unlist(step$feature)
  total <- rep(step$start, nrow(X))
  for (root in unlist(step$roots)) {
    at <- rep(root, nrow(X))
    repeat {
      x <- X[cbind(seq_len(nrow(X)), feature[at + 1] + 1)]
      goes_left <- ifelse(is.na(x), unlist(step$missing_left)[at + 1], x <= unlist(step$threshold)[at + 1])
      child <- ifelse(goes_left, left[at + 1], right[at + 1])
      if (all(child == at)) break
      at <- child
    }
    total <- total + unlist(step$value)[at + 1]
  }
  total
}

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) == 1) {
  rule <- fromJSON(arguments[1], simplifyVector = FALSE, bigint_as_char = FALSE)
  column <- function(x) unlist(lapply(x, function(one) if (is.null(one)) NA else one))
  rows <- as.data.frame(lapply(rule$vectors$rows, column), check.names = FALSE)
  name <- if (rule$gives == "decision") "p_positive" else "prediction"
  mine <- predict_rows(rule, rows, column(rule$vectors$draws))
  theirs <- entries(rule$vectors$results[[name]])
  same <- ifelse(is.na(mine), is.na(theirs), !is.na(theirs) & abs(mine - theirs) <= 1e-9)
  cat(sum(!same), "of", length(same), "results differ from those of fairfix\n")
  quit(status = as.integer(!all(same)))
}
